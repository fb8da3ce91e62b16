package sstable

// NewIterator makes an iterator that is not positioned yet.
func (r *Reader) NewIterator(opts IterOptions) *Iterator {
	it := new(Iterator)
	it.Init(r, opts)
	return it
}
