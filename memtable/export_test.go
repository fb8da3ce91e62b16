package memtable

// SeekRowExact positions on the row with this key, if it is there. It uses the hash and is
// several times faster than SeekRow.
func (it *Iterator) SeekRowExact(key []byte) bool {
	l, _ := it.m.findRow(it.m.hash.of(key), key)
	return it.setRow(l)
}
