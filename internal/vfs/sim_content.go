package vfs

import "bytes"

// The bytes of simulated files: arrays of pages, of which a copy costs one pointer per page.
// What a program sees, what is on the disk, and the images after crashes share their equal
// pages.

// pageSize is the unit in which the simulated page cache and disk hold content and count space.
const pageSize = 4096

// page may be shared once it is frozen: then it is never written again, and a write to its place
// makes a new page.
type page struct {
	frozen bool
	data   [pageSize]byte
}

// reservedPage stands for allocated space that is all zero: preallocated, or filled with zeros,
// as logs are prepared. Real pages would take as much memory as disk. It is frozen, so it never
// changes.
var reservedPage = &page{frozen: true}

// content is the bytes of one file in one state. Beyond size, and where a page is nil (a hole),
// the content is zero.
//
// Invariants: no whole page lies beyond size; the bytes of the last page beyond size are zero.
type content struct {
	size  int64
	pages []*page
}

// pagesFor returns how many pages size bytes take.
func pagesFor(size int64) int { return int((size + pageSize - 1) / pageSize) }

// readAt copies the bytes at off into p and returns how many there were.
func (c *content) readAt(p []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-off)]
	for done := 0; done < len(p); {
		i, start := int((off+int64(done))/pageSize), int((off+int64(done))%pageSize)
		n := min(pageSize-start, len(p)-done)
		if i < len(c.pages) && c.pages[i] != nil {
			copy(p[done:done+n], c.pages[i].data[start:])
		} else {
			clear(p[done : done+n])
		}
		done += n
	}
	return len(p)
}

// writeAt stores p at off, and grows the content if necessary.
func (c *content) writeAt(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	if end := off + int64(len(p)); end > c.size {
		c.resize(end)
	}
	for done := 0; done < len(p); {
		i, start := int((off+int64(done))/pageSize), int((off+int64(done))%pageSize)
		if start == 0 && len(p)-done >= pageSize && allZero(p[done:done+pageSize]) {
			c.cover(i + 1)
			c.pages[i] = reservedPage
			done += pageSize
			continue
		}
		done += copy(c.writable(i).data[start:], p[done:])
	}
}

// allZero reports whether p holds only zeros.
func allZero(p []byte) bool {
	for len(p) > pageSize {
		if !bytes.Equal(p[:pageSize], reservedPage.data[:]) {
			return false
		}
		p = p[pageSize:]
	}
	return bytes.Equal(p, reservedPage.data[:len(p)])
}

// writable returns page i for writing: a new page for a hole, a copy of a shared page.
func (c *content) writable(i int) *page {
	c.cover(i + 1)
	switch pg := c.pages[i]; {
	case pg == nil:
		c.pages[i] = new(page)
	case pg.frozen:
		c.pages[i] = &page{data: pg.data}
	}
	return c.pages[i]
}

// cover makes the page array hold at least n entries.
func (c *content) cover(n int) {
	for len(c.pages) < n {
		c.pages = append(c.pages, nil)
	}
}

// resize sets the size. Bytes beyond it are gone; added bytes are zero.
func (c *content) resize(size int64) {
	if n := pagesFor(size); n < len(c.pages) {
		clear(c.pages[n:]) // release the pages that were cut off
		c.pages = c.pages[:n]
	}
	if rest := int(size % pageSize); rest != 0 && size < c.size {
		if i := int(size / pageSize); i < len(c.pages) && c.pages[i] != nil {
			clear(c.writable(i).data[rest:])
		}
	}
	c.size = size
}

// reserve allocates space for [0, size), and grows the content to it.
func (c *content) reserve(size int64) {
	c.size = max(c.size, size)
	c.cover(pagesFor(size))
	for i := range c.pages[:pagesFor(size)] {
		if c.pages[i] == nil {
			c.pages[i] = reservedPage
		}
	}
}

// sharePages makes pages [from, to) of c those of src, and freezes them.
func (c *content) sharePages(src *content, from, to int) {
	c.cover(min(to, len(src.pages)))
	for i := from; i < min(to, len(c.pages)); i++ {
		if i >= len(src.pages) || src.pages[i] == nil {
			c.pages[i] = nil
			continue
		}
		// This checks first: disks that share a page have different locks, and a shared page
		// must not be written, not even with the same value.
		if !src.pages[i].frozen {
			src.pages[i].frozen = true
		}
		c.pages[i] = src.pages[i]
	}
}

// clone returns a copy that shares all pages.
func (c *content) clone() content {
	out := content{size: c.size}
	out.sharePages(c, 0, len(c.pages))
	return out
}
