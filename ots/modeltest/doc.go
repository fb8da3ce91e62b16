// Package modeltest runs random requests against the OTS layer and a model of it, and compares
// the answers. The model consists of maps of rows, columns and versions, and applies the rules
// naively and at once. The two share no decision code: the model was written from
// docs/semantics.md and the protocol's rules.
//
// Requests are single writes of every kind (puts, updates, deletes, deletes of columns and
// versions, increments, with client versions and conditions), batches, atomic batches, local
// transactions, reads of rows and ranges with every selection and filter, and changes of Max
// Versions, Time To Live and Max Version Offset. The clock moves only in steps. The store is so
// small that it flushes and compacts all the time. Some steps flush, compact or reopen it, also
// after a power cut.
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
// FLAGSTONE_OTS_MODEL_WORKERS is the number of stores tested in parallel, 1 by default.
//
// The seed is random by default; the tests print it with -v and in every failure. The system
// schedules background work, so a seed repeats the requests, but not the moments of flushes and
// compactions.
package modeltest
