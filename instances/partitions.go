package instances

import (
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// Partition is flagstone.Partition as text. Values of the partition key are written as Value.Text does.
type Partition struct {
	ID       uint64    `json:"id"`
	Start    *string   `json:"start"` // null is unbounded
	End      *string   `json:"end"`   // the same
	Cut      bool      `json:"cut"`
	Bytes    int64     `json:"bytes"`
	Reads    float64   `json:"reads_per_second"`
	Writes   float64   `json:"writes_per_second"`
	ByteRate float64   `json:"bytes_per_second"`
	Units    float64   `json:"units_per_second"`
	Findings []Finding `json:"findings,omitempty"`
	// Busiest is flagstone.Partition.Busiest, cut after 64 bytes; null is none.
	Busiest      *string `json:"busiest"`
	BusiestUnits float64 `json:"busiest_units_per_second"`
}

// Finding is flagstone.Finding as text, or says which requests are refused.
type Finding struct {
	Kind   string  `json:"kind"`
	Key    *string `json:"key"`
	Figure float64 `json:"figure"`
	Limit  float64 `json:"limit"`
}

// Partitions lists the partitions of a table in key order. Errors match ErrNotFound, or are those of
// the store.
func (h *Home) Partitions(_ context.Context, instance, table string) ([]Partition, error) {
	t, err := h.table(instance, table)
	if err != nil {
		return nil, err
	}
	engine, _, err := h.service(instance)
	if err != nil {
		return nil, err
	}
	refused, code, rate := engine.Refusals(t)
	var list []Partition
	for _, p := range t.Partitions() {
		shown := Partition{
			ID: p.ID, Start: keyText(p.Start), End: keyText(p.End), Cut: p.Cut, Bytes: p.Bytes,
			Reads: p.Reads, Writes: p.Writes, ByteRate: p.ByteRate, Units: p.Units, Busiest: keyText(Shortened(p.Busiest)), BusiestUnits: p.BusiestUnits,
		}
		for _, f := range p.Findings {
			shown.Findings = append(shown.Findings, Finding{f.Kind.String(), keyText(f.Key), f.Figure, f.Limit})
		}
		if ofKey := refused.Type() != row.TypeNone; rate > 0 && (ofKey && p.Holds(refused) || !ofKey && len(list) == 0) {
			shown.Findings = append(shown.Findings, Finding{"requests refused: " + code, keyText(Shortened(refused)), rate, 0})
		}
		list = append(list, shown)
	}
	return list, nil
}

// Split is flagstone.Table.Split at a value as Value.Text writes it. Errors match ErrNotFound or
// ErrInvalid, or are those of the store.
func (h *Home) Split(ctx context.Context, instance, table, at string) error {
	return h.replace(instance, table, at, func(t *flagstone.Table, v row.Value) error { return t.Split(ctx, v) })
}

// Merge is flagstone.Table.Merge at a value as Value.Text writes it. Errors match ErrNotFound or
// ErrInvalid, or are those of the store.
func (h *Home) Merge(ctx context.Context, instance, table, at string) error {
	return h.replace(instance, table, at, func(t *flagstone.Table, v row.Value) error { return t.Merge(ctx, v) })
}

func (h *Home) replace(instance, table, at string, do func(t *flagstone.Table, v row.Value) error) error {
	t, err := h.table(instance, table)
	if err != nil {
		return err
	}
	v, err := ParseValue(t.Info().Key[0].Type, at)
	if err == nil {
		err = do(t, v)
	}
	switch {
	case errors.Is(err, flagstone.ErrTableNotFound): // dropped meanwhile
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, flagstone.ErrInvalid):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

// table finds a table of an instance. Errors match ErrNotFound, or are those of the store.
func (h *Home) table(instance, table string) (*flagstone.Table, error) {
	engine, name, err := h.service(instance)
	if err != nil {
		return nil, err
	}
	t, err := engine.Table(name, table)
	return t, missing(err, instance, table)
}

// missing gives the error for a table that does not exist the kind ErrNotFound.
func missing(err error, instance, table string) error {
	var own *ots.Error
	if errors.As(err, &own) && own.Code == ots.CodeObjectNotExist {
		return fmt.Errorf("%w: instance %q has no table %q", ErrNotFound, instance, table)
	}
	return err
}
