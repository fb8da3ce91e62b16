package ots

// This file changes tables: UpdateTable (PROTOCOL section 7).

import (
	"context"

	flagstone "github.com/flagstone-db/flagstone"
)

// UpdateTable changes the properties of a table that the request names, and returns the new
// state.
func (e *Engine) UpdateTable(ctx context.Context, instance string, req *UpdateTableRequest) (*TableDescription, error) {
	if err := e.limits.checkUpdate(req); err != nil {
		return nil, err
	}
	if bad := e.tableOps.enter(ctx); bad != nil {
		return nil, bad
	}
	defer e.tableOps.leave()
	if err := e.admitTableOperation(); err != nil {
		return nil, err
	}
	t, bad := e.table(instance, req.Table)
	if bad != nil {
		return nil, bad
	}
	engineOptions := t.options
	if req.Options != nil {
		setEngineOptions(&t.options, req.Options)
		set(&t.AllowUpdate, req.Options.AllowUpdate)
		if req.Options.BloomFilterType != nil {
			t.BloomFilterType = req.Options.BloomFilterType
		}
		if req.Options.BlockSize != nil {
			t.BlockSize = req.Options.BlockSize
		}
	}
	if req.ReservedThroughput != nil {
		if err := e.forbidReserved(req.ReservedThroughput, true); err != nil {
			return nil, err
		}
		if err := e.adjustReserved(t, req.ReservedThroughput); err != nil {
			return nil, err
		}
	}
	change := flagstone.TableChange{Annotations: t.encode()}
	if change.Stream, bad = e.streamChange(req.Stream, t.details()); bad != nil {
		return nil, bad
	}
	if change.Stream != nil && change.Stream.Enable == nil {
		if bad := e.streamTunnels(ctx, instance, t); bad != nil {
			return nil, bad
		}
	}
	if t.options != engineOptions {
		change.Options = &t.options
	}
	if err := t.engine.Alter(ctx, change); err != nil {
		return nil, e.asError(err, "update table", t.name, false)
	}
	return t.describe(), nil
}

// adjustReserved changes the reserved throughput and records the time of a rise or a fall.
// Setting the present values again changes nothing.
func (e *Engine) adjustReserved(t *table, given *ReservedThroughput) *Error {
	read, write := t.ReservedRead, t.ReservedWrite
	set(&read, given.Read)
	set(&write, given.Write)
	if read == t.ReservedRead && write == t.ReservedWrite {
		return nil
	}
	now := e.store.WallMillis() / 1000
	if e.limits.EnforceRates {
		last := max(t.LastIncreaseTime, t.LastDecreaseTime)
		if last <= now && now-last < e.limits.ThroughputInterval {
			return &Error{Code: CodeTooFrequentAdjustment, Message: "Capacity unit adjustment is too frequent."}
		}
	}
	if read > t.ReservedRead || write > t.ReservedWrite {
		t.LastIncreaseTime = now
	}
	if read < t.ReservedRead || write < t.ReservedWrite {
		t.LastDecreaseTime = now
	}
	t.ReservedRead, t.ReservedWrite = read, write
	return nil
}

func (l *Limits) checkUpdate(req *UpdateTableRequest) *Error {
	if err := l.checkTableName(req.Table); err != nil {
		return err
	}
	if req.Options != nil && req.Options.UpdateFullRow != nil {
		return invalid("The table options of UpdateTable cannot contain updateFullRow.")
	}
	none := req.Options == nil || *req.Options == (TableOptions{})
	if none && req.ReservedThroughput == nil && req.Stream == nil {
		return invalid("No parameter is specified in table options.")
	}
	if err := l.checkStream(req.Stream); err != nil {
		return err
	}
	if req.Options != nil {
		if err := l.checkOptions(req.Options); err != nil {
			return err
		}
	}
	if req.ReservedThroughput != nil {
		return l.checkReserved(req.ReservedThroughput)
	}
	return nil
}
