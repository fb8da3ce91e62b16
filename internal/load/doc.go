// Package load measures the load of a partition: how many rows and bytes are read and written per
// second, and which keys they belong to.
//
// A Meter is always on, so it has to be cheap. An operation adds once to a counter, in one of
// several cache lines. After about sampleUnits capacity units, one operation empties the counter
// into totals and offers its key to a sample. The sample is small and decays: an operation's chance
// to be in it halves with every HalfLife. From it follow the partition key that halves the load and
// the one that has most of it.
//
//	m := load.New(columns, clock.Elapsed())
//	m.Read(stripe, key, 1, bytes) // with every read
//	m.Write(stripe, key, bytes)   // with every write
//	figures := m.Look(clock.Elapsed()) // every few seconds
//	keys := m.Sample()                 // if the figures are high
//
// The unit of load is that of Table Store, which knows one figure for operations and bytes: an
// operation costs one capacity unit for every 4 KiB, rounded up, and at least one.
package load
