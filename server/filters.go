package server

import (
	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
)

// This file decodes filters (PROTOCOL section 4), which travel as bytes within messages: a
// Filter holds the bytes of the message of its type, and a composite holds Filters. Decoding
// bounds the number of nodes, and so the depth.

// filters are the decoded filters of one request by their encoding. Equal filters become one
// pointer, which the service compiles once.
type filters map[string]*ots.Filter

// decode calls decodeFilter once for each different filter.
func (known filters) decode(b []byte) (*ots.Filter, error) {
	if f := known[string(b)]; f != nil {
		return f, nil
	}
	f, err := decodeFilter(b)
	if err == nil {
		known[string(b)] = f
	}
	return f, err
}

// decodeFilter decodes a filter; nil if there is none.
func decodeFilter(b []byte) (*ots.Filter, error) {
	if len(b) == 0 {
		return nil, nil
	}
	m := new(otspb.Filter)
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, filterBroken()
	}
	left := &parts{messages: ots.MaxFilterNodes - 1} // this filter is the first node
	return filterOf(m, left)
}

func filterBroken() error {
	return refuse(ots.CodeParameterInvalid, "Deserialize filter failed")
}

// filterOf decodes the content of a node. left bounds the number of further nodes.
func filterOf(m *otspb.Filter, left *parts) (*ots.Filter, error) {
	switch *m.Type {
	case otspb.FilterType_FT_SINGLE_COLUMN_VALUE:
		return singleColumn(m.Filter)
	case otspb.FilterType_FT_COMPOSITE_COLUMN_VALUE:
		return composite(m.Filter, left)
	case otspb.FilterType_FT_COLUMN_PAGINATION:
		var p otspb.ColumnPaginationFilter
		if err := proto.Unmarshal(m.Filter, &p); err != nil {
			return nil, filterBroken()
		}
		return &ots.Filter{Type: ots.FilterPagination, Offset: *p.Offset, Limit: *p.Limit}, nil
	}
	return nil, filterBroken()
}

func composite(b []byte, left *parts) (*ots.Filter, error) {
	var m otspb.CompositeColumnValueFilter
	// For this message, the content of a sub-filter is one text.
	level := parts{messages: left.messages, texts: ots.MaxFilterNodes}
	if !level.count(m.ProtoReflect().Descriptor(), b) {
		if level.messages < 0 {
			return nil, refuse(ots.CodeParameterInvalid, "The count of filter exceeds the max: %d.", ots.MaxFilterNodes)
		}
		return nil, filterBroken()
	}
	left.messages = level.messages
	if proto.Unmarshal(b, &m) != nil || checkEnum(otspb.LogicalOperator_name, *m.Combinator) != nil {
		return nil, filterBroken()
	}
	// ots.LogicalOperator and ots.Comparator have the numbers of the protocol.
	f := &ots.Filter{Type: ots.FilterComposite, Operator: ots.LogicalOperator(*m.Combinator)}
	for _, sub := range m.SubFilters {
		decoded, err := filterOf(sub, left)
		if err != nil {
			return nil, err
		}
		f.Subs = append(f.Subs, decoded)
	}
	return f, nil
}

func singleColumn(b []byte) (*ots.Filter, error) {
	var m otspb.SingleColumnValueFilter
	if proto.Unmarshal(b, &m) != nil || checkTexts(*m.ColumnName) != nil ||
		checkEnum(otspb.ComparatorType_name, *m.Comparator) != nil {
		return nil, filterBroken()
	}
	f := &ots.Filter{
		Type:              ots.FilterSingleColumn,
		Comparator:        ots.Comparator(*m.Comparator),
		Column:            *m.ColumnName,
		FilterIfMissing:   *m.FilterIfMissing,
		LatestVersionOnly: *m.LatestVersionOnly,
	}
	var err error
	if f.Comparator != ots.CompareExists && f.Comparator != ots.CompareNotExists {
		if f.Value, err = plainbuffer.DecodeVariant(m.ColumnValue); err != nil {
			return nil, filterBroken()
		}
	}
	if m.ValueTransRule != nil {
		f.Transfer, err = valueTransfer(m.ValueTransRule)
	}
	return f, err
}

// valueTransfer converts a rule. Without a cast the part stays a string.
func valueTransfer(m *otspb.ValueTransferRule) (*ots.ValueTransferRule, error) {
	if err := checkTexts(*m.Regex); err != nil {
		return nil, filterBroken()
	}
	rule := &ots.ValueTransferRule{Regex: *m.Regex, Cast: row.TypeString}
	if m.CastType == nil {
		return rule, nil
	}
	switch *m.CastType {
	case otspb.VariantType_VT_INTEGER:
		rule.Cast = row.TypeInteger
	case otspb.VariantType_VT_DOUBLE:
		rule.Cast = row.TypeDouble
	case otspb.VariantType_VT_STRING:
	default:
		rule.Cast = row.TypeNone // for the service to refuse
	}
	return rule, nil
}
