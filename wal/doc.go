// Package wal is the write-ahead log: records go in, are durable when Sync has
// returned, and come out again, in order, after a crash. It knows files and
// frames, not what a record means.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// A log is a run of segments, files numbered without gaps. A segment is a
// header block followed by groups; a group is what one write carried, padded
// to the block, so that a block that may hold acknowledged records is never
// written a second time. format.go draws the bytes.
//
//	writer.go    Append: the group to come, and writing it
//	sync.go      Sync: group commit by leader and follower
//	segment.go   the life of a segment: spare -> current -> sealed -> spare
//	turn.go      from one segment to the next, beside those who append
//	device.go    for how long the disk has not answered
//	spare.go     the files waiting to become segments
//	recover.go   reading a log after a crash
//	scan.go      reading the frames of one segment; torn tail or damage
//	format.go    header and frame, byte by byte
//
// # What ends a segment
//
// A segment is sealed by its successor: the header of segment n+1 states where
// segment n ends, how many records it has, and a running checksum over all its
// frames. Whatever lies beyond that point is not part of the log. Everything
// before it was durable before the header of n+1 was written, so a reader that
// does not find exactly that has found damage.
//
// The last segment has no successor. If it was closed in good order it ends in
// a trailer frame, else its end is found by reading up to the first bad frame.
// A bad frame is damage if a good frame behind it states that the place was
// already durable; otherwise it is a torn tail, the trace of a crash, and is
// cut. The last two groups of a log that was not closed, which may have been on
// their way at once, cannot be judged either way: no later frame testifies to
// them.
//
// # Starting again after a crash
//
// The new writer never appends to an old segment. Records of the old last
// segment that lie beyond the last offset stated to be durable may be there
// only by the grace of the page cache, so nothing may be built on them in
// place. They are carried over: the new segment is written and synced in full
// under a spare name, with the header (which seals the old segment at its last
// stated durable offset) and copies of those records, and becomes part of the
// log by one rename and directory sync. A crash before that leaves the old log
// as it was, one after it finds the new log complete; so recovery can be
// interrupted any number of times.
package wal
