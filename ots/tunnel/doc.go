// Package tunnel decides what a data tunnel does: which channels it has, which client reads
// which channel, and up to where a channel was consumed. It knows neither HTTP nor tables: Env
// is all that it needs of them.
//
//	stored.go     what is kept of tunnels and channels, docs/format-tunnels.md
//	token.go      positions and client ids as clients carry them
//	assign.go     which client gets which channel, a pure function
//	tunnel.go     one tunnel: its clients, and what is refused
//	heartbeat.go  a client's report, and the channels that it should have
//	channels.go   channels come and end; checkpoints
//
// A channel is a part of the data with an order of its own: a range of the table (the base), or
// a shard of its stream. The channels of a stream follow the splits and merges of the table's
// partitions: the channel of a shard is made only after those of its parents have ended, and
// those of the stream only after those of the base. So a client that reads a tunnel sees the
// changes of each row in their order.
//
// Tunnels, channels and checkpoints are kept in the store. Which clients are connected is known
// in memory only. After a restart, or after a failed write, a client goes on with the id that it
// has: the id is signed, and the rows of channels name their holders.
package tunnel
