// Package wal is the write-ahead log: it appends records, makes them durable with Sync, and reads
// them back in order after a crash. It knows files and frames, not what a record means.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// A log is a sequence of segments, files numbered without gaps. A segment is a header block
// followed by groups. A group is what one write carries, padded to whole blocks, so that a block
// that may hold acknowledged records is never written a second time. format.go gives the layout.
//
//	writer.go    AppendNow: filling the next group, and writing it
//	sync.go      Sync: group commit by leader and follower
//	handover.go  handing groups to the operating system when there is no Sync
//	segment.go   the life of a segment: spare -> current -> sealed -> spare
//	lazy.go      segments that become durable late
//	rotation.go  rotation from one segment to the next, while appends go on
//	device.go    how long the disk has not answered
//	spare.go     the files waiting to become segments
//	recover.go   reading a log after a crash
//	scan.go      reading the frames of one segment; torn tail or damage
//	format.go    header and frame, byte by byte
//	compress.go  groups that are compressed
//	slow.go      whether the device is slow enough to compress for it
//
// # What ends a segment
//
// Its successor seals a segment: the header of segment n+1 states where segment n ends, how many
// records it has, and a running checksum over all its frames. Anything beyond that point is not
// part of the log. Everything before it was durable before the header of n+1 was written, so a
// reader that finds anything else has found damage. If n+1 has lazyVersion, and the owner does not
// know that n is durable, it has found the end of the log instead.
//
// The last segment has no successor. If it was closed in good order it ends in a trailer frame;
// otherwise the reader finds its end at the first bad frame. A bad frame is damage if a good
// frame behind it states that the place was already durable; otherwise it is a torn tail, the
// trace of a crash, and is cut. The last two groups of a log that was not closed, which may have
// been in flight at once, cannot be told apart this way: no later frame states that they were
// durable.
//
// # Starting again after a crash
//
// The new writer never appends to an old segment. Records of the old last segment that lie beyond
// its last stated durable offset may exist only in the page cache, so the writer must not build
// on them in place. It carries them over: it writes and syncs the new segment in full under a
// spare name, with the header (which seals the old segment at its last stated durable offset) and
// copies of those records. One rename and directory sync then make it part of the log. A crash
// before that leaves the old log as it was, a crash after it finds the new log complete, so
// recovery can be interrupted any number of times. Earlier segments that need not be durable are
// synced in place, and later ones deleted, before that (lazy.go).
package wal
