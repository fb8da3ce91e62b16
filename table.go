package flagstone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/internal/external"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// KeyColumn is one column of a table's primary key.
type KeyColumn struct {
	Name string
	Type row.Type // integer, string or binary
	// AutoIncrement says that front ends generate the column's values. The store does not.
	AutoIncrement bool
}

// NeverExpires is the TTLSeconds of a table whose cells do not expire.
const NeverExpires int64 = -1

// TableOptions are the properties of a table that can change while it runs. Zero fields stand for
// the defaults.
type TableOptions struct {
	// MaxVersions is how many versions of a column are kept. Default 1.
	MaxVersions int64
	// TTLSeconds, the Time To Live, is how long after its version a cell lives. Default
	// NeverExpires.
	TTLSeconds int64
	// MaxVersionOffsetSeconds is how far above the time of the write a version may lie. Default a
	// day.
	MaxVersionOffsetSeconds int64
}

// defaultOffset is the default of MaxVersionOffsetSeconds.
const defaultOffset = 24 * 3600

// TableSpec describes a table to be made.
type TableSpec struct {
	// Name is 1 to 512 bytes of UTF-8 without NUL.
	Name string
	// Key has one to four columns. The first is the partition key: rows with the same value of it
	// always lie in one partition.
	Key     []KeyColumn
	Options TableOptions
	// Annotations are bytes that the store keeps for a front end and does not read.
	Annotations []byte
	// Stream, if not nil, gives the table a stream of its changes.
	Stream *StreamSpec
	// SplitAt are the partition-key values at which the table is split from the beginning: n of
	// them make n+1 partitions. They are at most 1000 different values of the first key column, in
	// any order, and cuts that the user asked for: see Partition.Cut. Only CreateTable reads them; Info
	// leaves them out, see Table.Splits.
	SplitAt []row.Value
}

// maxSplits bounds TableSpec.SplitAt.
const maxSplits = table.MaxSplits

// TableInfo describes a table as it is.
type TableInfo struct {
	TableSpec
	ID            uint64
	CreatedMillis int64
	// ExpiryWatermark is the time, in seconds, below which expired data may have been dropped for
	// good: a longer Time To Live brings back nothing older. math.MinInt64 if nothing was
	// dropped.
	ExpiryWatermark int64
	Partitions      int
}

// Table is a handle to a table. It stays valid until the table is dropped;
// then its methods return ErrTableNotFound.
type Table struct {
	store     *Store
	core      *table.Table
	latencies *latencies
}

// change changes the catalogue. It waits, within ctx, until no other change is in progress; Close
// waits for the change.
func (s *Store) change(ctx context.Context, f func() error) error {
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	return s.work(func() error {
		if err := s.tables.Lock(ctx); err != nil {
			return err
		}
		defer s.tables.Unlock()
		return f()
	})
}

// CreateTable makes a table; it is ready at once. Errors match ErrTableExists
// and ErrInvalid.
func (s *Store) CreateTable(ctx context.Context, spec TableSpec) (t *Table, err error) {
	t, err = s.command(ctx, external.Create, func() (*manifest.Edit, error) { return s.creation(&spec, nil) })
	if err == nil && t == nil {
		t, err = s.Table(spec.Name)
	}
	return t, err
}

// command changes the catalogue as an edit describes, by itself or, if the log is external, when the command
// comes back from there. It returns the table that it has made by itself.
func (s *Store) command(ctx context.Context, kind external.Kind, describe func() (*manifest.Edit, error)) (made *Table, err error) {
	if s.external != nil {
		return nil, s.describe(s.external.Command(ctx, kind, describe))
	}
	err = s.change(ctx, func() error {
		e, err := describe()
		if err == nil {
			made, err = s.execute(kind, e)
		}
		return err
	})
	return made, err
}

// execute carries out a command that makes, alters or drops a table. REQUIRES: tables is held.
func (s *Store) execute(kind external.Kind, e *manifest.Edit) (made *Table, err error) {
	switch kind {
	case external.Create:
		return s.createTable(e)
	case external.Alter:
		t, err := s.tables.find(e.Altered[0].Table)
		if err == nil {
			err = t.alter(e)
		}
		return nil, err
	}
	t, err := s.tables.find(e.Dropped[0])
	if err == nil {
		err = s.dropTables(s.tables.but(func(other *Table) bool { return other != t && other.core.LogOf != t.core.ID }))
	}
	return nil, err
}

// creation describes a new table, and its change log if it is to have a stream. The table gets its id,
// sequence number and time when it is made; partition ids count from 0 here. If like is not nil, the table
// is divided as that one. REQUIRES: tables is held.
func (s *Store) creation(spec *TableSpec, like *table.Table) (*manifest.Edit, error) {
	if s.tables.current.Load().byName[spec.Name] != nil {
		return nil, fmt.Errorf("%w: %q", ErrTableExists, spec.Name)
	}
	options, err := spec.Options.fill()
	if own := checkName(spec.Name); own != nil {
		return nil, own
	}
	if err == nil {
		err = spec.Stream.check()
	}
	var key []manifest.KeyColumn
	for _, k := range spec.Key {
		key = append(key, manifest.KeyColumn(k))
	}
	var partitions []*manifest.Partition
	switch {
	case err != nil:
	case like != nil:
		partitions, err = like.Divided()
	default:
		partitions, err = table.Divide(key, spec.SplitAt)
	}
	if err != nil {
		return nil, fmt.Errorf("table %q: %w", spec.Name, err)
	}
	meta := &manifest.Table{
		Name: spec.Name, Key: key,
		Options: options, LargestOffset: options.MaxVersionOffsetSeconds,
		Watermark: manifest.NoWatermark, Annotations: slices.Clone(spec.Annotations),
		Partitions: partitions,
	}
	e := &manifest.Edit{Created: []*manifest.Table{meta}}
	if spec.Stream != nil {
		e.Created = append(e.Created, newLogMeta(0, 0, 0, 0, spec.Stream, 0))
	}
	return e, nil
}

// createTable makes a table as creation describes it, which it changes. REQUIRES: tables is held.
func (s *Store) createTable(e *manifest.Edit) (*Table, error) {
	state, created := s.state(), e.Created
	meta := created[0]
	meta.ID, meta.CreatedMillis = state.NextTable, s.changeMillis()
	for _, p := range meta.Partitions {
		p.ID += state.NextPartition
	}
	if len(created) > 1 {
		next := state.NextPartition + uint64(len(meta.Partitions))
		created[1] = newLogMeta(meta.ID+1, next, meta.ID, s.pipeline.LastSeq(), specOf(created[1]), meta.CreatedMillis)
	}
	return s.addTable(e, 0)
}

// checkName refuses names that the store uses itself.
func checkName(table string) error {
	if strings.HasPrefix(table, cdc.HiddenPrefix) {
		return fmt.Errorf("%w: table name %q: such names are the store's own", ErrInvalid, table)
	}
	return nil
}

// addTable makes the table of an edit, with its change log if it has one. Views below a sequence number do not
// show it. REQUIRES: tables is held.
func (s *Store) addTable(e *manifest.Edit, since uint64) (*Table, error) {
	// Without this sync, a change of the catalogue could survive earlier writes.
	if err := s.sync(); err != nil {
		return nil, err
	}
	name := e.Created[0].Name
	state, err := s.commitEdit(e)
	if errors.Is(err, manifest.ErrInvalidEdit) {
		err = fmt.Errorf("%w: table %q: %w", ErrInvalid, name, err)
	}
	if err != nil {
		return nil, err
	}
	t := newTable(s, state.Table(e.Created[0].ID))
	for _, tree := range t.core.Trees() {
		tree.CameAt(since)
	}
	s.tables.change(func(c *catalog) {
		c.add(t)
		for _, log := range e.Created[1:] {
			c.add(newTable(s, state.Table(log.ID)))
		}
	})
	s.opts.Logger.Info("table created", "table", name, "id", t.core.ID)
	return t, nil
}

// fill replaces zero options by the defaults and checks the rest.
func (o TableOptions) fill() (filled manifest.TableOptions, err error) {
	o.MaxVersions, o.TTLSeconds = cmp.Or(o.MaxVersions, 1), cmp.Or(o.TTLSeconds, NeverExpires)
	o.MaxVersionOffsetSeconds = cmp.Or(o.MaxVersionOffsetSeconds, defaultOffset)
	switch {
	case o.MaxVersions < 1:
		return filled, fmt.Errorf("%w: MaxVersions is %d, want at least 1", ErrInvalid, o.MaxVersions)
	case o.TTLSeconds < 1 && o.TTLSeconds != NeverExpires:
		return filled, fmt.Errorf("%w: TTLSeconds is %d, want at least 1 or NeverExpires", ErrInvalid, o.TTLSeconds)
	case o.MaxVersionOffsetSeconds < 1:
		return filled, fmt.Errorf("%w: MaxVersionOffsetSeconds is %d, want at least 1", ErrInvalid, o.MaxVersionOffsetSeconds)
	}
	return manifest.TableOptions(o), nil
}

// Table returns the table of that name, or ErrTableNotFound.
func (s *Store) Table(name string) (*Table, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	t := s.tables.current.Load().byName[name]
	if t == nil || t.core.Dropped.Load() {
		return nil, fmt.Errorf("%w: %q", ErrTableNotFound, name)
	}
	return t, nil
}

// Tables returns all tables, ordered by name.
func (s *Store) Tables() []*Table {
	return s.tables.but(func(t *Table) bool { return t.core.LogOf != 0 || t.core.Dropped.Load() })
}

// Name returns the table's name.
func (t *Table) Name() string { return t.core.Name }

// Info describes the table as it is now; the zero TableInfo if it was dropped.
func (t *Table) Info() TableInfo {
	meta := t.core.Meta()
	if meta == nil {
		return TableInfo{}
	}
	key := make([]KeyColumn, len(meta.Key))
	for i, k := range meta.Key {
		key[i] = KeyColumn(k)
	}
	return TableInfo{
		TableSpec: TableSpec{
			Name: meta.Name, Key: key, Options: TableOptions(meta.Options),
			Annotations: slices.Clone(meta.Annotations), Stream: t.streamSpec(),
		},
		ID: meta.ID, CreatedMillis: meta.CreatedMillis,
		ExpiryWatermark: meta.Watermark, Partitions: len(meta.Partitions),
	}
}

// TableChange says what Alter changes in one step; nil fields stay as they are.
type TableChange struct {
	Options     *TableOptions
	Annotations []byte
	Stream      *StreamChange
}

// Splits returns the partition-key values at which the table is split now, ascending: its partitions
// are one more than these. It returns none if the table was dropped.
func (t *Table) Splits() []row.Value {
	var splits []row.Value
	if meta := t.core.Meta(); meta != nil {
		for _, p := range meta.Partitions[1:] {
			v, _ := row.PartitionValueAt(p.Start, len(meta.Key))
			splits = append(splits, v.Clone())
		}
	}
	return splits
}

// Alter changes a table's options, annotations or stream. Lower limits take effect for readers at
// once; higher ones may bring back versions that were hidden and are not dropped yet, but never
// what was deleted or overwritten. Open snapshots keep the options they were made with.
//
// A change of options or of the stream first waits for the running updates of all tables, without
// holding up others. After an error of ctx nothing was changed. Updates of the table that began
// meanwhile run again.
func (t *Table) Alter(ctx context.Context, change TableChange) error {
	s := t.store
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	if change.Options != nil || change.Stream != nil {
		if err := s.latches.Pass(ctx); err != nil {
			return err
		}
	}
	_, err := s.command(ctx, external.Alter, func() (*manifest.Edit, error) { return t.alteration(&change) })
	return err
}

// alteration describes an alteration: the options and annotations that the table is to have, a change
// log that is made, without what it gets then, or the end of the present one. REQUIRES: tables is held.
func (t *Table) alteration(change *TableChange) (*manifest.Edit, error) {
	meta := t.core.Meta()
	if meta == nil {
		return nil, fmt.Errorf("%w: %q was dropped", ErrTableNotFound, t.core.Name)
	}
	options, annotations := meta.Options, meta.Annotations
	if change.Options != nil {
		var err error
		if options, err = change.Options.fill(); err != nil {
			return nil, fmt.Errorf("table %q: %w", t.core.Name, err)
		}
	}
	if options.MaxVersions > meta.Options.MaxVersions && t.store.external != nil {
		return nil, fmt.Errorf("%w: table %q: with an external log MaxVersions cannot be raised: replicas have dropped different versions",
			ErrInvalid, t.core.Name)
	}
	if change.Annotations != nil {
		annotations = slices.Clone(change.Annotations)
	}
	if err := t.checkStream(change.Stream); err != nil {
		return nil, err
	}
	e := &manifest.Edit{Altered: []manifest.Alteration{{Table: t.core.ID, Options: options, Annotations: annotations}}}
	switch {
	case change.Stream == nil:
	case change.Stream.Enable == nil:
		e.Ended = []manifest.LogEnding{{}}
	default:
		e.Created = []*manifest.Table{newLogMeta(0, 0, t.core.ID, 0, change.Stream.Enable, 0)}
	}
	return e, nil
}

// alter is Alter without the wait, as alteration describes it. REQUIRES: tables is held.
func (t *Table) alter(e *manifest.Edit) error {
	if err := t.commitAlteration(e); err != nil {
		return err
	}
	t.store.dropEndedLogs()
	return nil
}

// commitAlteration changes options between two eras of the table and while no compaction is being
// installed. A write chooses its trims by the options it reads, and a compaction what to drop;
// these options must be in force when the write or compaction takes effect. The manifest gets the
// sequence number up to which the old options were in force, see views.Set.MaxVersions.
func (t *Table) commitAlteration(e *manifest.Edit) error {
	s, before, options := t.store, t.core.Meta().Options, e.Altered[0].Options
	s.merges.Lock()
	defer s.merges.Unlock()
	if options != before || len(e.Created)+len(e.Ended) > 0 { // writers do not read annotations
		defer t.core.EndEra()()
	}
	lastSeq := s.pipeline.LastSeq()
	// Without this sync, the new options could survive earlier writes.
	if err := s.sync(); err != nil {
		return err
	}
	if options.MaxVersions < before.MaxVersions {
		limit := manifest.PastLimit{MaxVersions: before.MaxVersions, LastSeq: lastSeq}
		e.PastLimits = []manifest.TableLimit{{Table: t.core.ID, PastLimit: limit}}
	}
	if s.external != nil && options.TTLSeconds != before.TTLSeconds && before.TTLSeconds != NeverExpires {
		// Replicas may have dropped different parts of what has expired. From now on all show nothing of it.
		cutoff := mvcc.CutoffAt(s.external.Millis(), before.TTLSeconds)
		e.Watermarks = []manifest.Watermark{{Table: t.core.ID, Cutoff: cutoff}}
	}
	install := t.alterStream(e, lastSeq)
	state, err := s.commitEdit(e)
	switch {
	case err == nil:
		install(state)
	case errors.Is(err, manifest.ErrInvalidEdit):
		err = fmt.Errorf("%w: table %q: %w", ErrInvalid, t.core.Name, err)
	}
	return err
}

// Key makes a primary key of Go values: string, []byte, int, int64 or row.Value. It panics on any
// other type.
func Key(values ...any) []row.Value {
	key := make([]row.Value, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case string:
			key[i] = row.String(v)
		case []byte:
			key[i] = row.Binary(v)
		case int:
			key[i] = row.Integer(int64(v))
		case int64:
			key[i] = row.Integer(v)
		case row.Value:
			key[i] = v
		default:
			panic(fmt.Sprintf("flagstone: a key value cannot be a %T", v))
		}
	}
	return key
}
