package compaction

import "github.com/flagstone-db/flagstone/manifest"

// staleShare: a value file is emptied when its garbage is one staleShare-th of it. At one half,
// a byte is written for each that is freed, and value files take at most twice their live bytes.
// A file that is all garbage is deleted without a rewrite.
const staleShare = 2

// StaleValues reports whether so much of a value file is garbage that compactions move its live
// values to another one.
func StaleValues(u manifest.ValueUsage) bool { return staleShare*u.Garbage() >= u.Bytes }

// valueBytes is how many bytes in value files the files' cells refer to.
func valueBytes(files []*manifest.FileMeta) (total int64) {
	for _, f := range files {
		for _, use := range f.Values {
			total += int64(use.Bytes)
		}
	}
	return total
}

// garbage estimates what a rewrite of the file frees in value files, and what it costs beside
// the file. A stale value file is emptied by the rewrites of all tables that refer to it, so
// each table counts a part of its garbage.
func (p *picker) garbage(f *manifest.FileMeta) (gain, cost float64) {
	for _, use := range f.Values {
		if u, live := p.Values(use.File); live && StaleValues(u) {
			gain += float64(u.Garbage()) * float64(use.Bytes) / float64(max(u.Live, 1))
			cost += float64(use.Bytes)
		}
	}
	return gain, cost
}
