//go:build race

package cache

// prefetch does nothing: a detector of races cannot know that nobody looks at what
// it reads.
func (b *Block[T]) prefetch() {}
