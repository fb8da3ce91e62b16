// Package upkeep decides what is flushed and compacted, and when. It runs both as background jobs
// and for callers that wait, tells the pressure gate how far the work is behind, and releases the
// log that nothing needs any more. It does not know tables: it has the trees of all of them.
package upkeep
