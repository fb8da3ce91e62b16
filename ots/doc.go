// Package ots is the Table Store (OTS) API as a thin layer over the engine: instances and their
// tables, rows with versioned cells, the checks and limits of the protocol, its error codes,
// and the cost of operations in capacity units. It knows neither HTTP nor the wire format;
// package server translates.
//
// A request passes three steps, and their order decides which error a client sees: the checks
// that need no table (validate.go, keys.go), the table and the fit of the key to its schema,
// then the operation. In a batch, a failure of the first step refuses the whole request; a
// later failure refuses single rows.
//
// A write looks at the row and at the clock inside a function that the engine runs as one step
// with the change (write.go). So conditions and increments are atomic, and versions that the
// server assigns never decrease within a row. Filters are trees (filter.go), evaluated on the
// cells of a scan (judge.go). The state that this layer keeps in memory can be rebuilt from the
// store; generated keys are durable before a client gets them (generate.go).
//
// Streams belong to the engine. This layer names them, and gives clients iterators that they
// cannot forge (stream.go, streamrecord.go).
//
// Features that are not offered (secondary indexes, encryption) are refused by name; no part of
// a request is silently ignored.
package ots
