package rowcache

import (
	"unsafe"

	"github.com/flagstone-db/flagstone/row"
)

// entry is the header of a row in the ring. Cells, key, and names and values follow it.
type entry struct {
	Moment
	minVersion                int64  // of the cells
	size                      uint32 // of the whole entry
	keyLen, cells, data, most uint32 // most: the largest number of versions in a column
	merged                    bool   // the row had to be put together
}

// cell is a row.Cell whose column and value lie among the names and values.
type cell struct {
	version    int64
	seq        uint64
	name       uint32
	value, end uint32
	nameLen    uint16
	head       uint8
	separate   bool
}

const (
	entrySize = int(unsafe.Sizeof(entry{}))
	cellSize  = int(unsafe.Sizeof(cell{}))
)

// sizeOf returns how many bytes a row takes in a ring, and how many of these are names and
// values. ok is false if the row is too large.
func sizeOf(key []byte, cells []row.Cell, capacity int) (size, data int, ok bool) {
	for i := range cells {
		c := &cells[i]
		if i == 0 || string(c.Column) != string(cells[i-1].Column) {
			data += len(c.Column)
		}
		if data += len(c.Value); data > maxEntry {
			return 0, 0, false
		}
	}
	size = (entrySize + len(cells)*cellSize + len(key) + data + 7) &^ 7
	return size, data, size <= min(maxEntry, capacity)
}

// holds reports whether a reader of the key at that moment finds what the entry has. It does if it looks at
// the same runs, with the same newest mutation of the row, under the same limit of versions, at
// the same or a later sequence number, and if no cell of the entry has expired. Cells that had
// expired before are still expired.
func (e *entry) holds(at *Moment, key []byte) bool {
	return e.State == at.State && e.Newest == at.Newest && e.MaxVersions == at.MaxVersions &&
		at.Seq >= e.Seq && at.Oldest >= e.Oldest && at.Oldest <= e.minVersion && string(e.key()) == string(key)
}

func (e *entry) list() []cell {
	return unsafe.Slice((*cell)(unsafe.Add(unsafe.Pointer(e), entrySize)), e.cells)
}

func (e *entry) key() []byte {
	at := unsafe.Add(unsafe.Pointer(e), entrySize+int(e.cells)*cellSize)
	return unsafe.Slice((*byte)(at), e.keyLen)
}

// namesAndValues is the memory that the cells point to.
func (e *entry) namesAndValues() []byte {
	at := unsafe.Add(unsafe.Pointer(e), entrySize+int(e.cells)*cellSize+int(e.keyLen))
	return unsafe.Slice((*byte)(at), e.data)
}

// fill copies key and cells behind the header.
func (e *entry) fill(key []byte, cells []row.Cell) {
	copy(e.key(), key)
	list, to := e.list(), e.namesAndValues()
	at, versions := 0, uint32(0)
	for i := range cells {
		from, c := &cells[i], &list[i]
		*c = cell{
			version: from.Version, seq: from.Seq,
			nameLen: uint16(len(from.Column)), head: from.Head(), separate: from.Separate,
		}
		if i > 0 && string(from.Column) == string(cells[i-1].Column) {
			c.name = list[i-1].name
			versions++
		} else {
			versions = 1
			c.name = uint32(at)
			at += copy(to[at:], from.Column)
		}
		c.value = uint32(at)
		at += copy(to[at:], from.Value)
		c.end = uint32(at)
		e.minVersion, e.most = min(e.minVersion, from.Version), max(e.most, versions)
	}
}

// collect appends the wanted cells of the row to dst.
func (e *entry) collect(w *Wanted, dst *row.Collector) {
	if w.NoCells {
		return
	}
	list, data, p := e.list(), e.namesAndValues(), &w.Projection
	if p.All() && !p.Cuts(int(e.most)) && w.MinVersion <= e.minVersion && w.MaxVersion == row.MaxVersion {
		data = dst.Copy(data)
		cells := dst.Extend(len(list))
		for i := range list {
			list[i].read(&cells[i], data)
		}
		return
	}
	versions := 0 // wanted versions of the column
	var c row.Cell
	for i := range list {
		list[i].read(&c, data)
		if i == 0 || list[i].name != list[i-1].name {
			versions = 0
		}
		if c.Version < w.MinVersion || c.Version > w.MaxVersion || !p.Wants(c.Column) {
			continue
		}
		if versions++; !p.Cuts(versions) {
			dst.Add(&c)
		}
	}
}

// read sets a cell whose names and values are in data.
func (c *cell) read(to *row.Cell, data []byte) {
	name := int(c.name) + int(c.nameLen)
	to.Column = data[c.name:name:name]
	to.Value = data[c.value:c.end:c.end]
	to.Version, to.Seq, to.Separate = c.version, c.seq, c.separate
	to.SetHead(c.head)
}
