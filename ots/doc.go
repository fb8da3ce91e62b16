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
// The layer holds no state of its own that matters. What decides a write, the
// existence of the row and the clock, is looked at by the function that the
// engine runs under the row's latch (write.go), so conditions are atomic with
// the change and versions of the server never decrease within a row.
//
// Features that are not offered yet (filters, column conditions, atomic
// increments, generated keys, streams, local transactions, atomic batches,
// secondary indexes, encryption) are refused by name; nothing that a request
// says is left out silently.
package ots
