package ots

// This file holds the checks that need no table: names, values, cells of a row change (PROTOCOL
// 6.4) and the selection of a read (PROTOCOL 5.1, 5.3). keys.go checks against a table's key.

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// maxTimestamp, in milliseconds, is above every version that a client may name: the service
// counts microseconds internally.
const maxTimestamp = math.MaxInt64 / 1000

func isPlainName(name string, limit int) bool {
	if len(name) == 0 || len(name) > limit {
		return false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return true
}

func isLooseName(name string, limit int) bool {
	if len(name) == 0 || name[0] == '#' || !utf8.ValidString(name) || utf8.RuneCountInString(name) > limit {
		return false
	}
	return !strings.ContainsFunc(name, unicode.IsControl)
}

func (l *Limits) checkTableName(name string) *Error {
	if !isPlainName(name, l.TableNameBytes) {
		return invalid("Invalid table name: '%s'.", printable(name))
	}
	return nil
}

func (l *Limits) checkColumnName(name string) *Error {
	ok := isPlainName(name, l.ColumnNameLength)
	if !ok && l.LooseColumnNames {
		ok = isLooseName(name, l.ColumnNameLength)
	}
	if !ok {
		return invalid("Invalid column name: '%s'.", printable(name))
	}
	return nil
}

// isInstanceName accepts letters, digits and hyphens, a letter first, no hyphen last.
func (l *Limits) isInstanceName(name string) bool {
	if len(name) < l.InstanceNameMinBytes || len(name) > l.InstanceNameMaxBytes {
		return false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case c >= '0' && c <= '9' && i > 0:
		case c == '-' && i > 0 && i < len(name)-1:
		default:
			return false
		}
	}
	return true
}

// printable keeps messages valid UTF-8, since they travel in a protobuf string.
func printable(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// typeName is the service's name of a value type.
func typeName(t row.Type) string {
	switch t {
	case row.TypeInteger:
		return "VT_INTEGER"
	case row.TypeDouble:
		return "VT_DOUBLE"
	case row.TypeBoolean:
		return "VT_BOOLEAN"
	case row.TypeString:
		return "VT_STRING"
	case row.TypeBinary:
		return "VT_BLOB"
	case row.TypeMin:
		return "VT_INF_MIN"
	case row.TypeMax:
		return "VT_INF_MAX"
	}
	return "VT_NULL"
}

// checkChange checks a row change except for its key. If it returns nil, the change is valid on
// any table whose key it fits.
func (l *Limits) checkChange(c *RowChange) *Error {
	if c.Existence > ExistenceExpectNot {
		return invalid("Invalid row-existence expectation: %d.", c.Existence)
	}
	var err *Error
	if c.condition == nil || c.condition.filter != c.ColumnCondition { // else it was compiled for another row of the request
		if c.condition, err = l.checkFilter(c.ColumnCondition, false); err != nil {
			return err
		}
	}
	if generatedColumn(c.Row.Key) >= 0 && (c.Existence != ExistenceIgnore || c.condition != nil) {
		return invalid("Can't set condition when modify row with pk auto increment.")
	}
	if err := l.checkChangeShape(c); err != nil {
		return err
	}
	if err := l.checkChangeCells(c); err != nil {
		return err
	}
	return l.checkReturn(c)
}

// CheckPut returns why PutRow would refuse a row, whatever the table; nil if it would not. It does not judge versions
// by the time of the write.
func (l *Limits) CheckPut(r *Row) error {
	c := &RowChange{Type: ChangePut, Row: *r}
	if err := l.checkWrite(c); err != nil {
		return err
	}
	if err := l.checkChangeSize(c); err != nil {
		return err
	}
	return nil
}

// checkChangeShape checks which parts the type of a change requires and allows.
func (l *Limits) checkChangeShape(c *RowChange) *Error {
	switch c.Type {
	case ChangePut, ChangeUpdate:
		if c.Row.DeleteMarker {
			return invalid("Invalid request of put/update row: unexpected RowDeleteMarker in request.")
		}
		if c.Type == ChangeUpdate && len(c.Row.Cells) == 0 {
			return invalid("Invalid update row request: missing cells in request.")
		}
	case ChangeDelete:
		if !c.Row.DeleteMarker {
			return invalid("Invalid request of delete row: missing RowDeleteMarker in request.")
		}
		if len(c.Row.Cells) > 0 {
			return invalid("Invalid delete row request: unexpected cells in request.")
		}
		if generatedColumn(c.Row.Key) >= 0 {
			return invalid("PKAutoIncr can't be used for delete operations.")
		}
	default:
		return invalid("The modify type is invalid.")
	}
	return nil
}

func (l *Limits) checkChangeCells(c *RowChange) *Error {
	for i := range c.Row.Cells {
		cell := &c.Row.Cells[i]
		if err := l.checkColumnName(cell.Name); err != nil {
			return err
		}
		if isKeyColumn(c.Row.Key, cell.Name) {
			return invalid("Duplicated attribute column name with primary key column: '%s'.", cell.Name)
		}
		if c.Type == ChangePut && cell.Op != OpPut {
			return invalid("OpType cannot be given for column name:%s in PutRow.", cell.Name)
		}
		if err := l.checkCell(cell); err != nil {
			return err
		}
	}
	if err := checkIncrements(c); err != nil {
		return err
	}
	if count := countColumns(c.Row.Cells, l.ColumnsPerWrite); count > l.ColumnsPerWrite {
		return invalid("The number of attribute columns exceeds the limit, limit count: %d, column count: %d.",
			l.ColumnsPerWrite, count)
	}
	return nil
}

// checkCell checks one cell of a put or update by its operation.
func (l *Limits) checkCell(cell *Cell) *Error {
	switch cell.Op {
	case OpPut:
		if err := l.checkAttribute(cell.Name, cell.Value); err != nil {
			return err
		}
	case OpDeleteAllVersion, OpDeleteOneVersion:
		if cell.Value.Type() != row.TypeNone {
			return invalid("Column value cannot be given when type is DELETE_ONE_VERSION,DELETE_ALL_VERSION.")
		}
		if cell.Op == OpDeleteOneVersion && !cell.HasVersion {
			return invalid("Timestamp must be given when type is DELETE_ONE_VERSION.")
		}
		if cell.Op == OpDeleteAllVersion && cell.HasVersion {
			return invalid("Timestamp cannot be given when type is DELETE_ALL_VERSION.")
		}
	case OpIncrement:
		if t := cell.Value.Type(); t != row.TypeInteger && !(l.DoubleIncrements && t == row.TypeDouble) {
			return invalid("%s is an invalid type for the atomic increment of column: '%s'.", typeName(t), cell.Name)
		}
		if cell.HasVersion {
			return invalid("Timestamp cannot be given when type is INCREMENT.")
		}
		if err := l.checkAttribute(cell.Name, cell.Value); err != nil {
			return err
		}
	default:
		return invalid("Invalid op type of cell: %d.", cell.Op)
	}
	if cell.HasVersion && (cell.Version < 0 || cell.Version >= maxTimestamp) {
		return invalid("Timestamp must be in range [0, INT64_MAX/1000).")
	}
	return nil
}

func (l *Limits) checkAttribute(name string, v row.Value) *Error {
	switch v.Type() {
	case row.TypeNone:
		return invalid("No value is given for column name: '%s'.", name)
	case row.TypeString, row.TypeBinary:
		if n := len(v.Bytes()); n > l.AttributeBytes {
			return invalid("The length of attribute column: '%s' exceeds the MaxLength:%d with CurrentLength:%d.",
				name, l.AttributeBytes, n)
		}
		if v.Type() == row.TypeString && !utf8.Valid(v.Bytes()) {
			return invalid("Value of column %s must be UTF8 encoding.", name)
		}
	case row.TypeDouble:
		if math.IsNaN(v.Float64()) {
			return invalid("NaN can't be set to double value.")
		}
		if math.IsInf(v.Float64(), 0) {
			return invalid("Infinity can't be set to double value.")
		}
	case row.TypeInteger, row.TypeBoolean:
	default:
		return invalid("%s is an invalid type for the attribute column.", typeName(v.Type()))
	}
	return nil
}

// countColumns counts distinct column names. It returns len(cells) if that is within the limit,
// to keep the common case cheap.
func countColumns(cells []Cell, limit int) int {
	if len(cells) <= limit {
		return len(cells)
	}
	seen := make(map[string]struct{}, len(cells))
	for i := range cells {
		seen[cells[i].Name] = struct{}{}
	}
	return len(seen)
}

// checkIncrements refuses a change with an increment and another operation on the same column.
func checkIncrements(c *RowChange) *Error {
	if !c.increments() {
		return nil
	}
	seen := make(map[string]CellOp, len(c.Row.Cells))
	for i := range c.Row.Cells {
		cell := &c.Row.Cells[i]
		before, repeated := seen[cell.Name]
		if repeated && (before == OpIncrement || cell.Op == OpIncrement) {
			return invalid("Column '%s' has an atomic increment and another operation in one request.", cell.Name)
		}
		seen[cell.Name] = cell.Op
	}
	return nil
}

// checkReturn checks what a write should return. RT_AFTER_MODIFY returns only incremented
// columns.
func (l *Limits) checkReturn(c *RowChange) *Error {
	if n := len(c.ReturnColumns); n > l.ColumnsPerWrite {
		return invalid("The number of columns from the request exceeds the limit, limit count: %d, column count: %d.",
			l.ColumnsPerWrite, n)
	}
	switch c.Return {
	case ReturnNone:
	case ReturnPK:
		if len(c.ReturnColumns) > 0 {
			return invalid("Return column names cannot be given when return type is RT_PK.")
		}
	case ReturnAfterModify:
		if !c.increments() {
			return invalid("Return type RT_AFTER_MODIFY can only be given with atomic increments.")
		}
		incremented := make(map[string]struct{})
		for i := range c.Row.Cells {
			if c.Row.Cells[i].Op == OpIncrement {
				incremented[c.Row.Cells[i].Name] = struct{}{}
			}
		}
		for _, name := range c.ReturnColumns {
			if _, ok := incremented[name]; !ok {
				return invalid("Return column '%s' is not incremented by the request.", printable(name))
			}
		}
	default:
		return invalid("Invalid return type: %d.", c.Return)
	}
	return nil
}

// reading is a checked selection.
type reading struct {
	columns []string // as given, each name once; nil: all
	options flagstone.ReadOptions
	filter  *predicate
}

// checkSelection checks the part that all reads share. versionMissing is the message for a read
// without a version condition.
func (l *Limits) checkSelection(s *Selection, versionMissing string) (reading, *Error) {
	var r reading
	switch {
	case len(s.Token) > 0:
		return r, unsupported("Tokens for reading a row in parts are")
	}
	var bad *Error
	if bad = checkTransaction(s.TransactionID); bad != nil {
		return r, bad
	}
	for _, name := range s.ColumnsToGet {
		if err := l.checkColumnName(name); err != nil {
			return r, err
		}
	}
	r.columns = distinct(s.ColumnsToGet)
	if len(r.columns) > l.ColumnsToGet {
		return r, invalid("The number of columns from the request exceeds the limit, limit count: %d, column count: %d.",
			l.ColumnsToGet, len(r.columns))
	}
	for _, bound := range []*string{s.StartColumn, s.EndColumn} {
		if bound != nil && *bound != "" {
			if err := l.checkColumnName(*bound); err != nil {
				return r, err
			}
		}
	}
	if s.StartColumn != nil {
		r.options.StartColumn = *s.StartColumn
	}
	if s.EndColumn != nil {
		r.options.EndColumn = *s.EndColumn
	}
	if err := checkVersions(s, &r.options, versionMissing); err != nil {
		return r, err
	}
	r.filter, bad = l.checkFilter(s.Filter, true)
	return r, bad
}

// checkVersions translates the version limit and time range of a read (PROTOCOL 5.1).
func checkVersions(s *Selection, opts *flagstone.ReadOptions, missing string) *Error {
	var times TimeRange
	if s.TimeRange != nil {
		times = *s.TimeRange
	}
	specific, ranged := times.Specific != nil, times.Start != nil || times.End != nil
	switch {
	case specific && ranged && s.MaxVersions != nil:
		return invalid("Specific timestamp, time range and max versions cannot be given at the same time.")
	case specific && ranged:
		return invalid("Specific tiemstamp and time range cannot be given at the same time.")
	case specific && s.MaxVersions != nil:
		return invalid("Specific tiemstamp and max versions cannot be given at the same time.")
	case ranged && (times.Start == nil || times.End == nil):
		return invalid("Start and end time must be given at the same time.")
	case !specific && !ranged && s.MaxVersions == nil:
		return invalid("%s", missing)
	}
	if s.MaxVersions != nil {
		if *s.MaxVersions < 1 {
			return invalid("Invalid max versions: %d. Reason: Max versions must be positive.", *s.MaxVersions)
		}
		opts.MaxVersions = int(*s.MaxVersions)
	}
	if specific {
		t := *times.Specific
		if t < 0 {
			return invalid("Specific timestamp cannot be less than 0.")
		}
		if t >= maxTimestamp {
			return invalid("Timestamp must be in range [0, INT64_MAX/1000).")
		}
		opts.MinVersion, opts.MaxVersion = t, t+1
	}
	if ranged {
		// The end may be any number above the start: clients send the largest integer for "no
		// end".
		if *times.Start < 0 || *times.End < 0 {
			return invalid("Timestamp must be in range [0, INT64_MAX/1000).")
		}
		if *times.Start >= *times.End {
			return invalid("Start time must be less than end time.")
		}
		opts.MinVersion, opts.MaxVersion = *times.Start, *times.End
	}
	return nil
}

// distinct returns each name once, in order of first appearance; nil for none.
func distinct(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	seen := make(map[string]struct{}, len(names))
	unique := make([]string, 0, len(names))
	for _, name := range names {
		if _, dup := seen[name]; !dup {
			seen[name] = struct{}{}
			unique = append(unique, name)
		}
	}
	return unique
}
