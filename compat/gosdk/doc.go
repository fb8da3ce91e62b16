// Package gosdk holds no code, only tests: the official Table Store SDK for Go,
// unmodified, against a flagstone server in a process of its own.
//
//	tables_test.go      create, list, describe, change, delete
//	rows_test.go        every type; put, update, delete; big rows
//	versions_test.go    versions, time ranges, Max Versions, Time To Live
//	conditions_test.go  row existence
//	filters_test.go     filters, pagination, column conditions
//	increments_test.go  increments, generated keys, atomic batches
//	range_test.go       GetRange: order, bounds, limits, pages; split points
//	batch_test.go       batches with mixed outcomes
//	capacity_test.go    capacity units, by the figures of the product
//	refusals_test.go    wrong credentials, what is not supported
//	instances_test.go   several instances, their types and access keys
//	testaids_test.go    the settable clock, injected faults, the SDK's retries
//	messages_test.go    messages, word by word
//	process_test.go     the process: start, refusals, stop, restart
//	sdktests_test.go    the tests that the SDK has of its tunnel packages
//	kill_test.go        kill -9 at any moment; oracle_test.go knows what must be there
//
// Run it with go test. It needs nothing but Go: it builds the command of the
// repository around it, and all traffic stays on this machine.
package gosdk
