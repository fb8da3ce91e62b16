package ots

// This file creates, describes, lists and deletes tables (PROTOCOL section 7); altertable.go
// changes them. Operations that change something run one at a time, so that a check (quota,
// present value) and the change that follows are one step.

import (
	"context"
	"fmt"
	"math"
	"strings"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// CreateTable makes a table, which is usable when the call returns.
func (e *Engine) CreateTable(ctx context.Context, instance string, req *CreateTableRequest) error {
	if err := e.limits.checkCreate(req); err != nil {
		return err
	}
	if err := e.forbidReserved(&req.ReservedThroughput, false); err != nil {
		return err
	}
	if bad := e.tableOps.enter(ctx); bad != nil {
		return bad
	}
	defer e.tableOps.leave()
	if err := e.admitNewTable(instance, req.Table); err != nil {
		return err
	}
	name := storedName(instance, req.Table)
	attrs := newAttributes(e.store.WallMillis() / 1000)
	for _, d := range req.DefinedColumns {
		attrs.Defined = append(attrs.Defined, definedAttributes{Name: d.Name, Type: uint8(d.Type)})
	}
	set(&attrs.ReservedRead, req.ReservedThroughput.Read)
	set(&attrs.ReservedWrite, req.ReservedThroughput.Write)
	set(&attrs.AllowUpdate, req.Options.AllowUpdate)
	set(&attrs.UpdateFullRow, req.Options.UpdateFullRow)
	attrs.BloomFilterType, attrs.BlockSize = req.Options.BloomFilterType, req.Options.BlockSize
	attrs.EnableLocalTxn = req.EnableLocalTxn
	spec := flagstone.TableSpec{
		Name:        name,
		Options:     flagstone.TableOptions{MaxVersionOffsetSeconds: e.limits.DefaultVersionOffset},
		Annotations: attrs.encode(),
	}
	setEngineOptions(&spec.Options, req.Options)
	for i := range len(req.Partitions) - 1 {
		spec.SplitAt = append(spec.SplitAt, req.Partitions[i].End)
	}
	for _, k := range req.PrimaryKey {
		spec.Key = append(spec.Key, flagstone.KeyColumn{Name: k.Name, Type: k.Type, AutoIncrement: k.AutoIncrement})
	}
	switch change, err := e.streamChange(req.Stream, nil); {
	case err != nil:
		return err
	case change != nil:
		spec.Stream = change.Enable
	}
	if _, err := e.store.CreateTable(ctx, spec); err != nil {
		return e.asError(err, "create table", req.Table, false)
	}
	return nil
}

// admitNewTable refuses a new table of an instance. REQUIRES: tableOps is held.
func (e *Engine) admitNewTable(instance, table string) *Error {
	if !e.HasInstance(instance) { // an instance that is being removed gets no more tables
		return &Error{Code: CodeAuthFailed, Message: "The instance is not found."}
	}
	if err := e.admitTableOperation(); err != nil {
		return err
	}
	if _, err := e.store.Table(storedName(instance, table)); err == nil {
		return &Error{Code: CodeObjectAlreadyExist, Message: "Requested table already exists."}
	}
	if len(e.tableNames(instance)) >= e.limits.Tables {
		return &Error{Code: CodeQuotaExhausted, Message: fmt.Sprintf("Number of tables exceeds the quota:%d.", e.limits.Tables)}
	}
	return nil
}

// NameFor returns the name by which the store would have a table of an instance that does not exist yet, for a table that
// comes in as files. It refuses what CreateTable would refuse for its name.
func (e *Engine) NameFor(ctx context.Context, instance, table string) (string, error) {
	if err := e.limits.checkTableName(table); err != nil {
		return "", err
	}
	if bad := e.tableOps.enter(ctx); bad != nil {
		return "", bad
	}
	defer e.tableOps.leave()
	if err := e.admitNewTable(instance, table); err != nil {
		return "", err
	}
	return storedName(instance, table), nil
}

// set assigns a value that is present.
func set[T any](to *T, given *T) {
	if given != nil {
		*to = *given
	}
}

// setEngineOptions copies the options that the engine implements.
func setEngineOptions(to *flagstone.TableOptions, given *TableOptions) {
	if given.TimeToLive != nil {
		to.TTLSeconds = int64(*given.TimeToLive)
	}
	if given.MaxVersions != nil {
		to.MaxVersions = int64(*given.MaxVersions)
	}
	set(&to.MaxVersionOffsetSeconds, given.MaxVersionOffset)
}

func (l *Limits) checkCreate(req *CreateTableRequest) *Error {
	if err := l.checkTableName(req.Table); err != nil {
		return err
	}
	if err := l.checkSchema(req.PrimaryKey); err != nil {
		return err
	}
	if err := checkGenerated(req); err != nil {
		return err
	}
	if err := l.checkDefinedColumns(req); err != nil {
		return err
	}
	switch {
	case req.HasIndexes:
		return unsupported("Secondary indexes are")
	case req.HasSSE:
		return unsupported("Server-side encryption (sse_spec) is")
	case req.Options == nil || req.Options.TimeToLive == nil:
		return invalid("Time-to-live is missing while creating table.")
	case req.Options.MaxVersions == nil:
		return invalid("MaxVersions is missing while creating table.")
	}
	if err := l.checkOptions(req.Options); err != nil {
		return err
	}
	if err := l.checkStream(req.Stream); err != nil {
		return err
	}
	if err := l.checkPartitions(req.Partitions, req.PrimaryKey[0].Type); err != nil {
		return err
	}
	return l.checkReserved(&req.ReservedThroughput)
}

// checkSchema checks the primary key of a new table.
func (l *Limits) checkSchema(key []KeyColumn) *Error {
	if len(key) < 1 || len(key) > l.KeyColumns {
		return invalid("The number of primary key columns must be in range: [1, %d].", l.KeyColumns)
	}
	for i, k := range key {
		if err := l.checkColumnName(k.Name); err != nil {
			return err
		}
		for _, before := range key[:i] {
			if before.Name == k.Name {
				return invalid("Duplicated primary key name: '%s'.", k.Name)
			}
		}
		switch {
		case k.Type == row.TypeNone:
			return invalid("Invalid column type, only STRING,INTEGER,BINARY is allowed.")
		case !k.Type.IsKeyType():
			return invalid("%s is an invalid type for the primary key.", strings.TrimPrefix(typeName(k.Type), "VT_"))
		}
	}
	return nil
}

// checkGenerated checks the auto-increment column of a new table.
func checkGenerated(req *CreateTableRequest) *Error {
	count := 0
	for i, k := range req.PrimaryKey {
		switch {
		case !k.AutoIncrement:
			continue
		case i == 0:
			return invalid("First primary key can't be auto increment, table: %s.", req.Table)
		case k.Type != row.TypeInteger:
			return invalid("AUTO_INCREMENT primary key must be integer.")
		}
		if count++; count > 1 {
			return invalid("AUTO_INCREMENT primary key count must <= 1.")
		}
	}
	return nil
}

func (l *Limits) checkDefinedColumns(req *CreateTableRequest) *Error {
	if len(req.DefinedColumns) > l.DefinedColumns {
		return invalid("The number of defined columns must be in range: [0, %d].", l.DefinedColumns)
	}
	for i, d := range req.DefinedColumns {
		if err := l.checkColumnName(d.Name); err != nil {
			return err
		}
		if !d.Type.IsAttributeType() {
			return invalid("Invalid type for attribute column")
		}
		for _, k := range req.PrimaryKey {
			if k.Name == d.Name {
				return invalid("Duplicated attribute column name with primary key column: '%s'.", d.Name)
			}
		}
		for _, before := range req.DefinedColumns[:i] {
			if before.Name == d.Name {
				return invalid("Duplicated attribute column name: '%s'.", d.Name)
			}
		}
	}
	return nil
}

func (l *Limits) checkOptions(o *TableOptions) *Error {
	if ttl := o.TimeToLive; ttl != nil && (*ttl == 0 || *ttl < -1) {
		return invalid("TimeToLive cannot be 0 or less than -1.")
	}
	if n := o.MaxVersions; n != nil && *n <= 0 {
		return invalid("The maximum versions cannot be less than or equal to 0.")
	}
	if offset := o.MaxVersionOffset; offset != nil {
		if *offset < 0 || *offset > l.MaxVersionOffset {
			return invalid("The maximum deviation must be in range [0, INT64_MAX/1000000].")
		}
		if *offset == 0 { // clients leave the field out for the default
			return invalid("The maximum deviation cannot be 0.")
		}
	}
	return nil
}

func (l *Limits) checkReserved(r *ReservedThroughput) *Error {
	for _, side := range []struct {
		name  string
		value *int32
	}{{"read", r.Read}, {"write", r.Write}} {
		switch {
		case side.value == nil:
		case *side.value < 0:
			return invalid("The value of %s capacity unit can not be less than 0.", side.name)
		case *side.value > l.ReservedUnits:
			return invalid("The value of %s capacity unit can not be greater than %d.", side.name, l.ReservedUnits)
		}
	}
	return nil
}

// admitTableOperation applies the limit on table operations per second, if EnforceRates is set.
// REQUIRES: tableOps is held.
func (e *Engine) admitTableOperation() *Error {
	if !e.limits.EnforceRates {
		return nil
	}
	now := e.store.WallMillis()
	recent := e.opTimes[:0]
	for _, t := range e.opTimes {
		if t <= now && now-t < 1000 {
			recent = append(recent, t)
		}
	}
	e.opTimes = recent
	if len(recent) >= e.limits.TableOperationsPerSec {
		return &Error{Code: CodeQuotaExhausted, Message: "Too frequent table operations."}
	}
	e.opTimes = append(e.opTimes, now)
	return nil
}

// tableNames lists the tables of an instance, ascending.
func (e *Engine) tableNames(instance string) []string {
	names := []string{}
	prefix := storedName(instance, "")
	for _, t := range e.store.Tables() {
		if name, ok := strings.CutPrefix(t.Name(), prefix); ok {
			names = append(names, name)
		}
	}
	return names
}

// ListTable returns the names of all tables of an instance, ascending.
func (e *Engine) ListTable(_ context.Context, instance string) ([]string, error) {
	return e.tableNames(instance), nil
}

// DescribeTable returns the full state of a table.
func (e *Engine) DescribeTable(_ context.Context, instance, name string) (*TableDescription, error) {
	if err := e.limits.checkTableName(name); err != nil {
		return nil, err
	}
	t, err := e.table(instance, name)
	if err != nil {
		return nil, err
	}
	return t.describe(), nil
}

func (t *table) describe() *TableDescription {
	d := &TableDescription{
		Table:              t.name,
		DefinedColumns:     t.definedColumns(),
		TimeToLive:         clampInt32(t.options.TTLSeconds),
		MaxVersions:        clampInt32(t.options.MaxVersions),
		MaxVersionOffset:   t.options.MaxVersionOffsetSeconds,
		AllowUpdate:        t.AllowUpdate,
		UpdateFullRow:      t.UpdateFullRow,
		BloomFilterType:    t.BloomFilterType,
		BlockSize:          t.BlockSize,
		ReservedRead:       t.ReservedRead,
		ReservedWrite:      t.ReservedWrite,
		LastIncreaseTime:   t.LastIncreaseTime,
		LastDecreaseTime:   t.LastDecreaseTime,
		CreationTimeMicros: t.info.CreatedMillis * 1000,
		EnableLocalTxn:     t.EnableLocalTxn,
		Stream:             t.details(),
	}
	for _, v := range t.engine.Splits() {
		d.Splits = append(d.Splits, nameKey(t.key, []row.Value{v}))
	}
	d.PrimaryKey = keySchema(t.key)
	return d
}

func keySchema(key []flagstone.KeyColumn) []KeyColumn {
	schema := make([]KeyColumn, len(key))
	for i, k := range key {
		schema[i] = KeyColumn{Name: k.Name, Type: k.Type, AutoIncrement: k.AutoIncrement}
	}
	return schema
}

// clampInt32 fits the engine's 64 bits into the protocol's 32: tables made through the engine
// may have larger numbers.
func clampInt32(v int64) int32 { return int32(min(max(v, -1), math.MaxInt32)) }

// DeleteTable drops a table with its data.
func (e *Engine) DeleteTable(ctx context.Context, instance, name string) error {
	if err := e.limits.checkTableName(name); err != nil {
		return err
	}
	if bad := e.tableOps.enter(ctx); bad != nil {
		return bad
	}
	defer e.tableOps.leave()
	if err := e.admitTableOperation(); err != nil {
		return err
	}
	if err := e.dropTable(ctx, instance, name); err != nil {
		return err
	}
	return nil
}

// dropTable drops a table and its state in memory. REQUIRES: tableOps is held.
func (e *Engine) dropTable(ctx context.Context, instance, name string) *Error {
	t, err := e.table(instance, name)
	if err != nil {
		return err
	}
	tunnels := e.openTunnels(ctx, instance, name)
	if err := e.store.DropTable(ctx, storedName(instance, name)); err != nil {
		return e.asError(err, "delete table", name, false)
	}
	e.dropTunnels(ctx, tunnels)
	e.attributes.Delete(t.info.ID)
	e.generators.tables.Delete(t.info.ID)
	e.meters.Delete(t.info.ID)
	return nil
}
