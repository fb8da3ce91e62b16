// Package schedule holds tests in which goroutines of the engine meet in a chosen order,
// and not by luck: one is stopped at a door (a call to the file system, or the function of an
// update), another one runs as far as it gets, and then the first goes on. A test asserts
// what callers see, whichever goroutine had to wait for the other.
//
//	settle_test.go    how a test knows that a goroutine gets no further
//	schedule_test.go  the schedules
//	guarded_test.go   many goroutines, on memory that may not be touched once it is freed
//
// fuzz/mutants names the mistakes that these tests find.
package schedule
