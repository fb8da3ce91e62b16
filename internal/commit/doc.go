// Package commit puts writes into one order: latches order the writers of a row, and a queue
// makes commits visible to readers in the order of their sequence numbers. It knows nothing of
// tables, streams and transactions.
package commit
