// Package ots is the Table Store (OTS) API as a thin layer over the engine:
// tables of instances, rows with versioned cells, the checks and limits of the
// protocol, its error codes, and what operations cost in capacity units. It
// knows nothing of HTTP and of the wire; package server translates.
//
// A request passes through three steps, and the order decides which error a
// client sees: what can be checked without a table (validate.go, keys.go), the
// table and the fit of the key to its schema, then the operation. In a batch,
// the first step refuses the whole request; the others refuse single rows.
//
// What decides a write, the row as it is and the clock, is looked at by the
// function that the engine runs under the row's latch (write.go), so conditions
// and increments are atomic with the change and versions of the server never
// decrease within a row. Filters are trees (filter.go) that are judged on the
// cells as a scan delivers them (judge.go). What the layer keeps in memory can
// be made again from the store; generated keys are durable before they are
// given out (generate.go).
//
// Streams are the engine's: this layer names them, and gives clients iterators
// that only it can make (stream.go, streamrecord.go).
//
// Features that are not offered (secondary indexes, encryption) are refused by
// name; nothing that a request says is left out silently.
package ots
