package ots

// This file counts what an operation costs (PROTOCOL section 13): sizes in
// bytes as the protocol defines them, rounded up to units of 4096 bytes.

import "math"

// unitBytes is the size of one capacity unit.
const unitBytes = 4096

// units rounds a size in bytes up to capacity units, at least one.
func units(bytes int64) int32 {
	switch n := (bytes + unitBytes - 1) / unitBytes; {
	case n < 1:
		return 1
	case n > math.MaxInt32:
		return math.MaxInt32
	default:
		return int32(n)
	}
}

// keySize is the size of a primary key in bytes: names and values.
func keySize(key []KeyValue) int64 {
	var size int64
	for i := range key {
		size += int64(len(key[i].Name) + key[i].Value.Size())
	}
	return size
}

// changeSize is the size of a row change in bytes: its key, and the name and value of every
// cell. A deleted column or version has only a name.
func changeSize(r *Row) int64 {
	size := keySize(r.Key)
	for i := range r.Cells {
		size += int64(len(r.Cells[i].Name) + r.Cells[i].Value.Size())
	}
	return size
}

// readCost is what reading one row of the given size costs.
func readCost(bytes int64) CapacityUnit { return CapacityUnit{Read: units(bytes)} }

// writeCost is the cost of one successful row change: its size on the write side, and its key
// on the read side if the change has a condition. key is that of the change, with generated values.
func writeCost(c *RowChange, key []KeyValue) CapacityUnit {
	var cost CapacityUnit
	if c.Type == ChangeDelete {
		cost.Write = units(keySize(key))
	} else {
		cost.Write = units(changeSize(&Row{Key: key, Cells: c.Row.Cells}))
	}
	if c.Existence != ExistenceIgnore || c.ColumnCondition != nil {
		cost.Read = units(keySize(key))
	}
	return cost
}

// refusedCost is the cost of a change whose condition failed.
func refusedCost() CapacityUnit { return CapacityUnit{Read: 1, Write: 1} }
