// Package fuzz holds the fuzz targets of the engine as a whole: their input is
// a history of operations, crashes included, which is played to a store on a
// simulated disk and to a plain map. The fuzz targets of decoders are in the
// packages of the decoders.
//
//	go test ./fuzz -run '^$' -fuzz FuzzHistory -fuzztime 10m -fuzzminimizetime 10x
//
// An input that fails is kept by the Go tool in testdata/fuzz and becomes a
// test.
package fuzz
