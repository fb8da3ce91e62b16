// Package modeltest runs random requests against the OTS layer and, beside it,
// against a model: maps of rows, columns and versions that say what the protocol
// says, naively and at once. The two share no code that decides anything. The
// model was written from docs/semantics.md and the protocol's rules.
//
// Requests are single writes of every kind (puts, updates, deletes, deletes of
// columns and versions, increments, with versions of clients and conditions),
// batches, atomic batches, local transactions, reads of rows and ranges with
// every selection and filter, and changes of Max Versions, Time To Live and Max
// Version Offset. The clock stands still but when a step moves it. The store
// under it is so small that it flushes and merges all the time; now and then it
// is flushed, merged, or opened anew, also after a power cut.
//
// The package holds tests only:
//
//	model_test.go     the model: what rows hold and what a change does to them
//	answers_test.go   what the model answers to reads
//	machine_test.go   the store under test, its clock, and the steps
//	writes_test.go    steps that write
//	reads_test.go     steps that read
//	options_test.go   steps that change options, and what these leave open
//	modeltest_test.go the tests, also of the model itself
//
//	go test ./ots/modeltest
//	FLAGSTONE_OTS_MODEL_OPS=5000000 go test -timeout 120m -v ./ots/modeltest
//	FLAGSTONE_OTS_MODEL_SEED=42 go test -v ./ots/modeltest
//
// FLAGSTONE_OTS_MODEL_WORKERS is how many stores are tested at a time, 1 unless
// set.
//
// The seed is random unless it is set; it is printed with -v and in every
// failure. Background work runs as the machine schedules it, so a seed repeats
// the requests and not when data is flushed and merged.
package modeltest
