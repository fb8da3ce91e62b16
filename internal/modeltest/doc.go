// Package modeltest runs random operations against the engine and, beside it,
// against a model: a naive sorted map of rows, each with the list of all that
// was ever done to it, which answers every read from first principles. The two
// share no code that decides anything: no encoding, no order of keys, no rule
// of visibility or expiry. The rule-book that the model was written from is
// docs/semantics.md.
//
// One seed decides everything: the operations, the clock, which background job
// runs when, and what a power cut leaves on the simulated disk. The package
// holds tests only:
//
//	model_test.go      the model: histories, and what a view shows of them
//	uncertain_test.go  what the rule-book leaves open, and how answers settle it
//	change_test.go     what is done to one row, for both sides
//	machine_test.go    the store under test, its disk, clock and executor
//	write_test.go      operations that write
//	read_test.go       operations that read, now and at held moments
//	admin_test.go      options, tables, flushes, compactions, checkpoints
//	stream_test.go     streams, and consumers that know what is to come
//	helpers_test.go    helpers of reads, who come at once, later, or never
//	clock_test.go      clock steps, and what may be purged by them
//	fault_test.go      I/O errors, of operations, of background jobs, while the store opens
//	crash_test.go      reopening, power cuts, and which prefix survived
//	generate_test.go   random keys, versions, values, bounds, options
//	modeltest_test.go  the configurations and the tests
//	rulebook_test.go   tests of the model itself
//	found_test.go      what the random operations found, as small tests
//
// A run is
//
//	go test ./internal/modeltest
//
// and a longer one, or one particular run,
//
//	FLAGSTONE_MODEL_OPS=20000000 go test -timeout 60m -v ./internal/modeltest
//	FLAGSTONE_MODEL_SEED=42 go test -run 'TestModel/tiny$' ./internal/modeltest
//
// The seed is random unless it is set; it is printed with -v and in every
// failure, with the operation, the history of the row, and the command that
// runs the episode again.
package modeltest
