package ots

// This file remembers who reads streams with iterators. Such a reader keeps its place itself, so the engine knows only
// what it gave to which sender, and forgets that when it is closed.

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// StreamReader is a sender of GetStreamRecord with a shard that it reads. Several programs may be one sender.
type StreamReader struct {
	Sender string // as in GetStreamRecordRequest
	Shard  string
	// GivenMicros is the time of the last record that it was given; without one, the time where it began.
	GivenMicros int64
	AskedMillis int64 // when it asked last
	All         bool  // there were no more records then
	Ended       bool  // nor will there be: the shard has ended
}

// mostReaders bounds the readers that are remembered.
const mostReaders = 4096

// readers remembers readers in two generations: who asks is in the young one. When that is full, the old one is forgotten.
type readers struct {
	mu         sync.Mutex
	young, old map[readerKey]StreamReader
}

// readerKey identifies a reader. Each stream of a store has a number of its own.
type readerKey struct {
	stream, shard uint64
	sender        string
}

// note notes what a reader was given.
func (r *readers) note(stream, shard uint64, seen StreamReader) {
	seen.Sender = strings.Clone(seen.Sender) // a part of larger headers
	r.mu.Lock()
	defer r.mu.Unlock()
	key := readerKey{stream, shard, seen.Sender}
	if _, ok := r.young[key]; !ok && len(r.young) >= mostReaders/2 || r.young == nil {
		r.young, r.old = make(map[readerKey]StreamReader), r.young
	}
	r.young[key] = seen
}

// of returns the readers of a stream, the one that asked last first.
func (r *readers) of(stream uint64) []StreamReader {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []StreamReader
	for key, seen := range r.young {
		if key.stream == stream {
			list = append(list, seen)
		}
	}
	for key, seen := range r.old {
		if _, again := r.young[key]; key.stream == stream && !again {
			list = append(list, seen)
		}
	}
	slices.SortFunc(list, func(a, b StreamReader) int {
		return cmp.Or(cmp.Compare(b.AskedMillis, a.AskedMillis), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Sender, b.Sender))
	})
	return list
}

// LookAtReaders returns the senders that read the stream of a table with iterators lately, the one that asked last first.
func (e *Engine) LookAtReaders(instance, name string) ([]StreamReader, error) {
	t, bad := e.table(instance, name)
	if bad != nil {
		return nil, bad
	}
	s, err := t.streamOf()
	if err != nil || s == nil {
		return nil, err
	}
	return e.readers.of(s.info.ID), nil
}
