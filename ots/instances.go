package ots

// This file holds the instances of a service: their names, and what their type
// allows. An instance is a name before the names of its tables; it takes nothing
// until it has one.

import (
	"context"
	"fmt"
	"strings"
)

// InstanceType is what an instance is made for. All instances of one Engine have
// the same; how the store under it is tuned for it is its owner's business.
type InstanceType string

const (
	// HighPerformance is for small answers in little time. The default.
	HighPerformance InstanceType = "high-performance"
	// Capacity is for much data that is read seldom. Its tables cannot reserve
	// throughput.
	Capacity InstanceType = "capacity"
)

// CheckInstances returns what New would refuse about instance names.
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

// CheckInstanceName returns why an instance cannot have the name.
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

// AddInstance serves one more instance. How many there are altogether is for
// the caller to watch. It fails on a malformed name and on one that is served.
func (e *Engine) AddInstance(name string) error {
	if err := CheckInstanceName(name, e.limits); err != nil {
		return err
	}
	e.instancesMu.Lock()
	defer e.instancesMu.Unlock()
	if _, ok := e.instances[name]; ok {
		return fmt.Errorf("instance %q is served already", name)
	}
	e.instances[name] = struct{}{}
	return nil
}

// RemoveInstance serves an instance no more and drops its tables; it may be one
// that is not served. Requests that are under way may still find a table, and
// fail or finish on it. If it fails, some tables may be left; it can be called
// again.
func (e *Engine) RemoveInstance(ctx context.Context, name string) error {
	e.tableOps.Lock() // no table is made meanwhile
	defer e.tableOps.Unlock()
	e.instancesMu.Lock()
	delete(e.instances, name)
	e.instancesMu.Unlock()
	for _, table := range e.tableNames(name) {
		if err := e.dropTable(ctx, name, table); err != nil {
			return fmt.Errorf("table %q of instance %q: %w", table, name, err)
		}
	}
	return nil
}

// forbidReserved refuses reserved throughput where the type of the instance
// has none. The number is a parameter of a new table, and a change of an
// existing one.
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
			return &Error{CodeForbiddenUpdateCapacityUnit, "Reserved throughput cannot be changed on an instance of type capacity."}
		}
		return invalid("The value of %s capacity unit can not be greater than 0.", side.name)
	}
	return nil
}

// Usage returns how many tables an instance has, and about how many bytes they
// take in memory and on disk.
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
