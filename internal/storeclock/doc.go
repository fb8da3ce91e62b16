// Package storeclock keeps the two clocks that a store derives from the machine's: Issued gives the
// times that writes are stamped with and never goes back; Trusted is the time by which expired data
// is dropped, and does not believe a wall clock that is ahead until it has stood.
package storeclock
