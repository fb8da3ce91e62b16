package ots

// This file holds the properties of a table that the protocol has and the engine does not. The
// engine stores them with the table as opaque bytes. They are JSON, so that tools can show
// them:
//
//	{"version":1,"reserved_read":0,"reserved_write":0,
//	 "last_increase_time":1500000000,"allow_update":true}
//
// A newer version than the known one is refused, since an unknown field may change the meaning
// of the others. A table without annotations (made through the engine directly) has the
// defaults.

import (
	"bytes"
	"encoding/json"
	"fmt"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// attributesVersion is the newest version of the JSON that this code reads, and the one it
// writes.
const attributesVersion = 1

// attributes are the properties of a table. Times are seconds since the epoch; 0 means never.
type attributes struct {
	Version          int                 `json:"version"`
	Defined          []definedAttributes `json:"defined_columns,omitempty"`
	ReservedRead     int32               `json:"reserved_read"`
	ReservedWrite    int32               `json:"reserved_write"`
	LastIncreaseTime int64               `json:"last_increase_time"`
	LastDecreaseTime int64               `json:"last_decrease_time,omitempty"`
	AllowUpdate      bool                `json:"allow_update"`
	UpdateFullRow    bool                `json:"update_full_row,omitempty"`
	BloomFilterType  *int32              `json:"bloom_filter_type,omitempty"`
	BlockSize        *int32              `json:"block_size,omitempty"`
	EnableLocalTxn   *bool               `json:"enable_local_txn,omitempty"`
	// GeneratedCeiling is above every value generated for the auto-increment column; see
	// generate.go.
	GeneratedCeiling int64 `json:"generated_ceiling,omitempty"`
}

// definedAttributes is one predefined column. Type is a number of row.Type.
type definedAttributes struct {
	Name string `json:"name"`
	Type uint8  `json:"type"`
}

func newAttributes(createdSeconds int64) attributes {
	return attributes{Version: attributesVersion, AllowUpdate: true, LastIncreaseTime: createdSeconds}
}

func (a *attributes) encode() []byte {
	a.Version = attributesVersion
	b, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("ots: table attributes do not encode: %v", err)) // plain data always does
	}
	return b
}

func decodeAttributes(info *flagstone.TableInfo) (attributes, error) {
	a := newAttributes(info.CreatedMillis / 1000)
	if len(info.Annotations) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(info.Annotations, &a); err != nil {
		return a, fmt.Errorf("ots: annotations of table %q: %w", info.Name, err)
	}
	if a.Version < 1 || a.Version > attributesVersion {
		return a, fmt.Errorf("ots: annotations of table %q have version %d, this program reads up to %d",
			info.Name, a.Version, attributesVersion)
	}
	return a, nil
}

func (a *attributes) definedColumns() []DefinedColumn {
	columns := make([]DefinedColumn, 0, len(a.Defined))
	for _, d := range a.Defined {
		columns = append(columns, DefinedColumn{Name: d.Name, Type: row.Type(d.Type)})
	}
	return columns
}

// cachedAttributes spares requests the decoding. An entry is valid while the table still has
// the bytes that it was decoded from.
type cachedAttributes struct {
	raw     []byte
	decoded attributes
}

func (e *Engine) attributesOf(info *flagstone.TableInfo) (attributes, error) {
	if c, ok := e.attributes.Load(info.ID); ok {
		if cached := c.(*cachedAttributes); bytes.Equal(cached.raw, info.Annotations) {
			return cached.decoded, nil
		}
	}
	decoded, err := decodeAttributes(info)
	if err != nil {
		return decoded, err
	}
	e.attributes.Store(info.ID, &cachedAttributes{raw: bytes.Clone(info.Annotations), decoded: decoded})
	return decoded, nil
}
