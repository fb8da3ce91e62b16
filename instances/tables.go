package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// ErrRefused says that the service refuses an operation, with its code and its message.
var ErrRefused = errors.New("refused")

// Table describes a table.
type Table struct {
	Name             string      `json:"name"`
	Key              []KeyColumn `json:"key"`
	TimeToLive       int32       `json:"time_to_live"` // seconds, -1 for ever
	MaxVersions      int32       `json:"max_versions"`
	MaxVersionOffset int64       `json:"max_version_offset"` // seconds
	AllowUpdate      bool        `json:"allow_update"`
	ReservedRead     int32       `json:"reserved_read"`
	ReservedWrite    int32       `json:"reserved_write"`
	StreamHours      int32       `json:"stream_hours"` // 0: it has no stream
	CreatedMillis    int64       `json:"created_millis"`
	Bytes            int64       `json:"bytes"` // about, in memory and on disk
	Partitions       int         `json:"partitions"`
}

// KeyColumn is a column of a primary key. Its type is string, integer or binary.
type KeyColumn struct {
	Name          string `json:"name"`
	Type          string `json:"type"`
	AutoIncrement bool   `json:"auto_increment,omitempty"`
}

// NewTable says how a table is made.
type NewTable struct {
	Name string      `json:"name"`
	Key  []KeyColumn `json:"key"`
	TableChange
}

// TableChange is what can be changed of a table; a nil field stays as it is. A new table keeps one version for ever, and
// has no stream.
type TableChange struct {
	TimeToLive       *int32 `json:"time_to_live,omitempty"` // seconds, -1 for ever
	MaxVersions      *int32 `json:"max_versions,omitempty"`
	MaxVersionOffset *int64 `json:"max_version_offset,omitempty"` // seconds
	StreamHours      *int32 `json:"stream_hours,omitempty"`       // how long a record is kept; 0: no stream
	ReservedRead     *int32 `json:"reserved_read,omitempty"`      // capacity units in a second
	ReservedWrite    *int32 `json:"reserved_write,omitempty"`
}

// service finds the operations of an instance, and the name that it was made with. Errors match ErrNotFound.
func (h *Home) service(instance string) (*ots.Engine, string, error) {
	engine, name, ok := h.Service(instance)
	if !ok {
		return nil, "", fmt.Errorf("%w: instance %q", ErrNotFound, instance)
	}
	return engine, name, nil
}

// refusal gives an error of the service its kind.
func refusal(err error, instance, table string) error {
	var own *ots.Error
	switch {
	case !errors.As(err, &own):
		return err
	case own.Code == ots.CodeObjectNotExist:
		return missing(err, instance, table)
	case own.Code == ots.CodeObjectAlreadyExist:
		return fmt.Errorf("table %q of instance %q %w", table, instance, ErrExists)
	case own.Code == ots.CodeTimeout:
		return err
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

// Tables describes the tables of an instance, by name. Errors match ErrNotFound.
func (h *Home) Tables(ctx context.Context, instance string) ([]Table, error) {
	engine, name, err := h.service(instance)
	if err != nil {
		return nil, err
	}
	names, err := engine.ListTable(ctx, name)
	if err != nil {
		return nil, refusal(err, instance, "")
	}
	list := []Table{}
	for _, table := range names {
		t, err := describe(ctx, engine, name, table)
		if errors.Is(err, ErrNotFound) {
			continue // dropped since it was listed
		}
		if err != nil {
			return nil, err
		}
		list = append(list, *t)
	}
	return list, nil
}

// Table describes a table. Errors match ErrNotFound.
func (h *Home) Table(ctx context.Context, instance, table string) (*Table, error) {
	engine, name, err := h.service(instance)
	if err != nil {
		return nil, err
	}
	return describe(ctx, engine, name, table)
}

func describe(ctx context.Context, engine *ots.Engine, instance, table string) (*Table, error) {
	d, err := engine.DescribeTable(ctx, instance, table)
	if err != nil {
		return nil, refusal(err, instance, table)
	}
	t := &Table{
		Name: table, TimeToLive: d.TimeToLive, MaxVersions: d.MaxVersions, MaxVersionOffset: d.MaxVersionOffset,
		AllowUpdate: d.AllowUpdate, ReservedRead: d.ReservedRead, ReservedWrite: d.ReservedWrite,
		CreatedMillis: d.CreationTimeMicros / 1000,
	}
	for _, k := range d.PrimaryKey {
		t.Key = append(t.Key, KeyColumn{k.Name, k.Type.String(), k.AutoIncrement})
	}
	if d.Stream != nil {
		t.StreamHours = d.Stream.ExpirationHours
	}
	stored, err := engine.Table(instance, table)
	if err != nil {
		return nil, refusal(err, instance, table)
	}
	t.Bytes, t.Partitions = stored.ApproximateSize(), stored.Info().Partitions
	return t, nil
}

// CreateTable makes a table. Errors match ErrNotFound, ErrExists, ErrInvalid or ErrRefused.
func (h *Home) CreateTable(ctx context.Context, instance string, t *NewTable) error {
	engine, name, err := h.service(instance)
	if err != nil {
		return err
	}
	req := ots.CreateTableRequest{Table: t.Name, Options: t.options(), Stream: t.stream(), ReservedThroughput: t.reserved()}
	req.Options.TimeToLive = cmp.Or(req.Options.TimeToLive, new(int32(-1)))
	req.Options.MaxVersions = cmp.Or(req.Options.MaxVersions, new(int32(1)))
	for _, k := range t.Key {
		of, err := ParseType(k.Type)
		if err != nil {
			return err
		}
		req.PrimaryKey = append(req.PrimaryKey, ots.KeyColumn{Name: k.Name, Type: of, AutoIncrement: k.AutoIncrement})
	}
	return refusal(engine.CreateTable(ctx, name, &req), instance, t.Name)
}

// ParseType finds an attribute type by its name. Errors match ErrInvalid.
func ParseType(name string) (row.Type, error) {
	for of := row.TypeInteger; of <= row.TypeBinary; of++ {
		if of.String() == name {
			return of, nil
		}
	}
	return row.TypeNone, fmt.Errorf("%w: no type is named %q; there are integer, double, boolean, string and binary", ErrInvalid, name)
}

// AlterTable changes a table. Errors match ErrNotFound or ErrRefused.
func (h *Home) AlterTable(ctx context.Context, instance, table string, c *TableChange) error {
	engine, name, err := h.service(instance)
	if err != nil {
		return err
	}
	req := ots.UpdateTableRequest{Table: table, Stream: c.stream()}
	if options := c.options(); *options != (ots.TableOptions{}) {
		req.Options = options
	}
	if reserved := c.reserved(); reserved != (ots.ReservedThroughput{}) {
		req.ReservedThroughput = &reserved
	}
	_, err = engine.UpdateTable(ctx, name, &req)
	return refusal(err, instance, table)
}

func (c *TableChange) options() *ots.TableOptions {
	return &ots.TableOptions{TimeToLive: c.TimeToLive, MaxVersions: c.MaxVersions, MaxVersionOffset: c.MaxVersionOffset}
}

func (c *TableChange) reserved() ots.ReservedThroughput {
	return ots.ReservedThroughput{Read: c.ReservedRead, Write: c.ReservedWrite}
}

func (c *TableChange) stream() *ots.StreamSpecification {
	switch {
	case c.StreamHours == nil:
		return nil
	case *c.StreamHours == 0:
		return &ots.StreamSpecification{}
	}
	return &ots.StreamSpecification{Enable: true, ExpirationHours: c.StreamHours}
}

// DropTable drops a table with its rows. Errors match ErrNotFound or ErrRefused.
func (h *Home) DropTable(ctx context.Context, instance, table string) error {
	engine, name, err := h.service(instance)
	if err != nil {
		return err
	}
	return refusal(engine.DeleteTable(ctx, name, table), instance, table)
}

// FlushTable writes what a table has in memory to table files. Errors match ErrNotFound, or are those of the store.
func (h *Home) FlushTable(ctx context.Context, instance, table string) error {
	t, err := h.table(instance, table)
	if err != nil {
		return err
	}
	return t.Flush(ctx)
}

// CompactTable merges all files of a table, and drops what is deleted, expired or overwritten. Errors match ErrNotFound, or are
// those of the store.
func (h *Home) CompactTable(ctx context.Context, instance, table string) error {
	t, err := h.table(instance, table)
	if err != nil {
		return err
	}
	return t.Compact(ctx, nil, nil)
}
