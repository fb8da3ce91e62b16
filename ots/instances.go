package ots

// This file holds the instances of a service: their names, and what their type allows. An
// instance is a prefix of table names; without tables it uses no storage.

import (
	"context"
	"fmt"
	"strings"

	"github.com/flagstone-db/flagstone/row"
)

// InstanceType is the purpose of an instance. All instances of one Engine have the same type.
// The owner of the store tunes it for the type.
type InstanceType string

const (
	// HighPerformance is for small answers at low latency. It is the default.
	HighPerformance InstanceType = "high-performance"
	// Capacity is for large data that is rarely read. Its tables cannot reserve throughput.
	Capacity InstanceType = "capacity"
)

// CheckInstances returns the error that New would return for these instance names.
func CheckInstances(names []string, limits Limits) error {
	if n := len(names); n < 1 || n > limits.Instances {
		return fmt.Errorf("%d instances, want 1 to %d", n, limits.Instances)
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if err := CheckInstanceName(name, limits); err != nil {
			return err
		}
		if seen[strings.ToLower(name)] {
			return fmt.Errorf("instance %q is named twice; case makes no difference", name)
		}
		seen[strings.ToLower(name)] = true
	}
	return nil
}

// CheckInstanceName returns an error if no instance can have the name.
func CheckInstanceName(name string, limits Limits) error {
	if !limits.isInstanceName(name) {
		return fmt.Errorf("instance name %q: want %d to %d letters, digits and hyphens, a letter first, no hyphen last",
			name, limits.InstanceNameMinBytes, limits.InstanceNameMaxBytes)
	}
	return nil
}

// HasInstance reports whether the instance is served.
func (e *Engine) HasInstance(instance string) bool {
	e.instancesMu.RLock()
	defer e.instancesMu.RUnlock()
	_, ok := e.instances[instance]
	return ok
}

// AddInstance serves one more instance. The caller limits their total number. It fails if the
// name is malformed or already served.
func (e *Engine) AddInstance(name string) error {
	if err := CheckInstanceName(name, e.limits); err != nil {
		return err
	}
	e.sweepTunnels(name) // before the lock, for which each request waits
	e.instancesMu.Lock()
	defer e.instancesMu.Unlock()
	if _, ok := e.instances[name]; ok {
		return fmt.Errorf("instance %q is served already", name)
	}
	e.instances[name] = struct{}{}
	return nil
}

// RemoveInstance stops serving an instance and drops its tables; an instance that is not served
// is fine too. Running requests may still find a table, and fail or finish on it. After an
// error some tables may remain, or all and the instance, if the context ended while other
// operations on tables ran; the call can be repeated.
func (e *Engine) RemoveInstance(ctx context.Context, name string) error {
	if bad := e.tableOps.enter(ctx); bad != nil { // no table is created meanwhile
		return bad
	}
	defer e.tableOps.leave()
	e.instancesMu.Lock()
	delete(e.instances, name)
	e.instancesMu.Unlock()
	return e.dropTables(ctx, name)
}

// DropTables drops the tables of an instance, which stays. Running requests, and errors, are as with RemoveInstance.
func (e *Engine) DropTables(ctx context.Context, instance string) error {
	if bad := e.tableOps.enter(ctx); bad != nil {
		return bad
	}
	defer e.tableOps.leave()
	return e.dropTables(ctx, instance)
}

// dropTables drops the tables of an instance. REQUIRES: tableOps is held.
func (e *Engine) dropTables(ctx context.Context, instance string) error {
	for _, table := range e.tableNames(instance) {
		if err := e.dropTable(ctx, instance, table); err != nil {
			return fmt.Errorf("table %q of instance %q: %w", table, instance, err)
		}
	}
	return e.deleteTunnelRows(ctx, []row.Value{row.String(instance)})
}

// forbidReserved refuses reserved throughput on instances of type Capacity. change selects the
// error: a new table has an invalid parameter, an existing one an update that is forbidden.
func (e *Engine) forbidReserved(given *ReservedThroughput, change bool) *Error {
	if e.instanceType != Capacity {
		return nil
	}
	for _, side := range []struct {
		name  string
		value *int32
	}{{"read", given.Read}, {"write", given.Write}} {
		if side.value == nil || *side.value == 0 {
			continue
		}
		if change {
			return &Error{Code: CodeForbiddenUpdateCapacityUnit, Message: "Reserved throughput cannot be changed on an instance of type capacity."}
		}
		return invalid("The value of %s capacity unit can not be greater than 0.", side.name)
	}
	return nil
}

// Usage returns the number of tables of an instance, and about how many bytes they use in
// memory and on disk.
func (e *Engine) Usage(ctx context.Context, instance string) (tables int, bytes int64, err error) {
	for _, name := range e.tableNames(instance) {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		found, err := e.store.Table(storedName(instance, name))
		if err != nil {
			continue // dropped since it was listed
		}
		tables++
		bytes += found.ApproximateSize()
	}
	return tables, bytes, nil
}
