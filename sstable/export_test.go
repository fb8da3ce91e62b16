package sstable

// NewIterator makes an iterator that is not positioned yet.
func (r *Reader) NewIterator(opts IterOptions) *Iterator {
	it := new(Iterator)
	it.Init(r, opts)
	return it
}

// newReadingAhead makes an iterator that reads at most so many bytes ahead; none if not positive.
func (r *Reader) newReadingAhead(opts IterOptions, most int) *Iterator {
	it := r.NewIterator(opts)
	it.blocks.bytes.most = most
	return it
}

// blockByBlock makes an iterator that does not read ahead.
func (r *Reader) blockByBlock() *Iterator { return r.newReadingAhead(IterOptions{}, -1) }
