// Package balance decides when the partitions of a table are split and merged. It does neither: it
// is shown the partitions every Interval, and answers with a Plan.
//
// A partition is split
//
//   - when it is larger than Settings.SplitBytes, at the partition key that halves its bytes;
//   - when it is busy for Settings.Sustained, at the partition key that halves its load. It is busy if
//     its load is above Settings.SplitUnits and above busyTimes the mean of its table. A table with
//     few partitions counts as one of spread partitions, so that a busy table spreads over that many
//     divided by busyTimes, or twice that.
//
// Two neighbours are merged when both had little load for Settings.Quiet, and are small together.
//
// Nothing flaps. What is merged has a quarter of the bytes and of the load that split it again, or
// less. A partition that was just made has had no time to be busy or quiet. A load that comes and
// goes faster than Settings.Quiet keeps the partitions that it needs when it is there.
//
// No split helps where one partition key has most of the load or of the bytes, or where the load
// moves to other keys all the time, as it does when rows are appended at the end of a table. Then
// the plan has a report instead.
package balance
