package cache

// WithShards is withShards.
func WithShards[T any](opts Options, shards int) *Cache[T] { return withShards[T](opts, shards) }
