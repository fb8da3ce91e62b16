package ots

// This file holds local transactions (PROTOCOL section 9): transactions of the engine under an
// id that requests name, with the protocol's limits on time and size. One request at a time may
// use a transaction.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// StartTransactionRequest is PROTOCOL 2.5 StartLocalTransaction. Row holds the partition key
// and nothing else.
type StartTransactionRequest struct {
	Table string
	Row   Row
}

// transactionIDBytes are random, so that a client cannot guess the id of another client.
const transactionIDBytes = 16

// session is a local transaction as requests see it.
type session struct {
	instance  string
	table     *table // as at the start; its options may have changed
	partition row.Value
	tx        *flagstone.Transaction

	inUse   sync.Mutex // held by the request that uses the transaction; others are refused at once
	written int64      // data of the writes so far, in bytes
}

func sessionMissing() *Error {
	return &Error{Code: CodeSessionNotExist, Message: "Session not exist or may be timeout."}
}

// checkTransaction refuses a malformed transaction id. nil means no transaction.
func checkTransaction(id *string) *Error {
	if id == nil {
		return nil
	}
	if decoded, err := hex.DecodeString(*id); err != nil || len(decoded) != transactionIDBytes {
		return invalid("TransactionID is invalid.")
	}
	return nil
}

// StartLocalTransaction begins a transaction on the rows of one partition key and returns its
// id. The transaction locks the partition key until commit, abort, or the end of
// Limits.TransactionSeconds.
func (e *Engine) StartLocalTransaction(ctx context.Context, instance string, req *StartTransactionRequest) (string, error) {
	if err := e.limits.checkTableName(req.Table); err != nil {
		return "", err
	}
	if err := e.limits.checkReadRow(&req.Row); err != nil {
		return "", err
	}
	if len(req.Row.Key) != 1 {
		return "", invalid("StartLocalTransaction support only one primary key.")
	}
	t, bad := e.table(instance, req.Table)
	if bad != nil {
		return "", bad
	}
	if t.EnableLocalTxn != nil && !*t.EnableLocalTxn {
		return "", invalid("Try to call method using explicit transaction on explicit-transaction-disabled table.")
	}
	if err := matchKey(t.key[:1], req.Row.Key); err != nil {
		return "", err
	}
	s := &session{instance: instance, table: t, partition: req.Row.Key[0].Value.Clone()}
	if err := e.admit(t, s.partition, writes); err != nil {
		return "", err
	}
	var random [transactionIDBytes]byte
	rand.Read(random[:])
	id := hex.EncodeToString(random[:])
	var err error
	s.tx, err = t.engine.Begin(ctx, s.partition, flagstone.TransactionOptions{
		Lifetime: time.Duration(e.limits.TransactionSeconds) * time.Second, Owner: instance,
		Ended: func() { e.sessions.Delete(id) },
	})
	if err != nil {
		return "", e.asError(err, "start transaction", t.name, false)
	}
	e.sessions.Store(id, s)
	if !s.tx.Open() { // it may end before the id is stored
		e.sessions.Delete(id)
	}
	e.chargeRow(t, s.partition, CapacityUnit{Write: 1})
	return id, nil
}

// CommitTransaction applies the writes of a transaction as a whole. They are durable when it
// returns without an error.
func (e *Engine) CommitTransaction(ctx context.Context, instance, id string) error {
	s, bad := e.take(instance, &id)
	if bad != nil {
		return bad
	}
	defer s.leave()
	commit, err := s.tx.CommitAsync(ctx)
	if err != nil {
		return e.asError(err, "commit transaction", s.table.name, false)
	}
	if err := commit.Wait(ctx); err != nil {
		return e.asError(err, "commit transaction", s.table.name, true)
	}
	e.chargeRow(s.table, s.partition, CapacityUnit{Write: 1})
	return nil
}

// AbortTransaction drops the writes of a transaction.
func (e *Engine) AbortTransaction(_ context.Context, instance, id string) error {
	s, bad := e.take(instance, &id)
	if bad != nil {
		return bad
	}
	defer s.leave()
	s.tx.Abort()
	e.chargeRow(s.table, s.partition, CapacityUnit{Write: 1})
	return nil
}

// take finds a transaction by its id and locks it for the request, which must call leave. A nil
// id gives a nil session, on which leave does nothing.
func (e *Engine) take(instance string, id *string) (*session, *Error) {
	if id == nil {
		return nil, nil
	}
	if err := checkTransaction(id); err != nil {
		return nil, err
	}
	found, ok := e.sessions.Load(*id)
	if !ok || found.(*session).instance != instance {
		return nil, sessionMissing()
	}
	s := found.(*session)
	if !s.inUse.TryLock() {
		return nil, &Error{Code: CodeSessionBusy, Message: "Session is busy: the last request of the transaction has not ended."}
	}
	return s, nil
}

func (s *session) leave() {
	if s != nil {
		s.inUse.Unlock()
	}
}

// covers returns an error unless the transaction covers a key of a table. A nil session covers
// all.
func (s *session) covers(t *table, key []KeyValue) *Error {
	switch {
	case s == nil:
		return nil
	case s.table.name != t.name:
		return &Error{Code: CodeDataOutOfRange, Message: fmt.Sprintf(
			"Data out of scope of transaction. Transaction Table:%s. Data Table:%s", s.table.name, t.name)}
	case s.table.info.ID != t.info.ID: // deleted and created again
		return sessionMissing()
	case key[0].Value.Type() == s.partition.Type() && compareValues(key[0].Value, s.partition) == 0:
		return nil
	}
	return &Error{Code: CodeDataOutOfRange, Message: printable(fmt.Sprintf(
		"Data out of scope of transaction. Transaction PartKey:%s. Data PartKey:%s", partitionText(s.partition), partitionText(key[0].Value)))}
}

// reserve counts the data of changes before they are written. cancel takes that back.
func (s *session) reserve(l *Limits, changes ...pendingWrite) (cancel func(), bad *Error) {
	var size int64
	for i := range changes {
		size += changeSize(&changes[i].change.Row)
	}
	if s.written+size > int64(l.TransactionBytes) {
		return nil, &Error{Code: CodeOutOfTransactionDataSize, Message: fmt.Sprintf(
			"The total data size of the transaction exceeds the limit, limit size: %d, data size: %d.", l.TransactionBytes, s.written+size)}
	}
	s.written += size
	return func() { s.written -= size }, nil
}

// source is where rows are read: a table, or a transaction on it.
type source interface {
	Get(ctx context.Context, key []row.Value, opts flagstone.ReadOptions) (*flagstone.Row, error)
	Scan(ctx context.Context, start, end []row.Value, opts flagstone.ScanOptions) *flagstone.Rows
}

// source returns what a request reads a table from.
func (s *session) source(t *table) source {
	if s == nil {
		return t.engine
	}
	return s.tx
}
