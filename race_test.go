//go:build race

package flagstone

// raced: the race detector makes sync.Pool forget at random.
const raced = true
