package main

// This file holds the four ways to key a purchase. Each answers another
// question with one range, and spreads its writes in another way.

import (
	"cmp"
	"crypto/md5"
	"fmt"
	"slices"
	"strings"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// Widths that numbers are padded to where they are parts of a string: strings
// sort byte by byte, so numbers of different lengths would sort wrongly.
const (
	cardWidth   = 10
	deviceWidth = 6
	orderWidth  = 14
)

// connector joins the parts of a spliced key. It is smaller than every
// character that a seller's name may hold, so "shop,..." sorts before
// "shop-books,...", as "shop" sorts before "shop-books".
const connector = ","

// layout is one way to key a purchase.
type layout struct {
	table string
	// about says what the table is good for.
	about string
	// schema are the key columns.
	schema []keyColumn
	// holds are the fields of a purchase that its key holds; the others are
	// attribute columns.
	holds []string
	// key returns the values of the key columns.
	key func(*purchase) []any
	// compare is the order of rows that the table must have. It looks at the
	// records, not at the keys made of them.
	compare func(a, b *purchase) int
}

type keyColumn struct {
	name string
	kind tablestore.PrimaryKeyType
}

const (
	integer = tablestore.PrimaryKeyType_INTEGER
	text    = tablestore.PrimaryKeyType_STRING
)

var layouts = []layout{byCard, byDevice, spliced, byOrder}

var byCard = layout{
	table:  "purchases_by_card",
	about:  "what a card bought, by seller",
	schema: []keyColumn{{"CardID", integer}, {"SellerID", text}, {"DeviceID", integer}, {"OrderNumber", integer}},
	holds:  []string{"CardID", "SellerID", "DeviceID", "OrderNumber"},
	key: func(p *purchase) []any {
		return []any{p.CardID, p.SellerID, p.DeviceID, p.OrderNumber}
	},
	compare: compareByCard,
}

var byDevice = layout{
	table:  "purchases_by_device",
	about:  "what a till sold, by time",
	schema: []keyColumn{{"DeviceID", integer}, {"OrderNumber", integer}},
	holds:  []string{"DeviceID", "OrderNumber"},
	key: func(p *purchase) []any {
		return []any{p.DeviceID, p.OrderNumber}
	},
	compare: func(a, b *purchase) int {
		return cmp.Or(cmp.Compare(a.DeviceID, b.DeviceID), cmp.Compare(a.OrderNumber, b.OrderNumber))
	},
}

// spliced makes one partition key of four values, so that no card, however
// busy, is one partition key. The rows sort as those of byCard do.
var spliced = layout{
	table:  "purchases_spliced",
	about:  "the same, every purchase a partition key of its own",
	schema: []keyColumn{{"CardSellerDeviceOrder", text}},
	holds:  []string{"CardID", "SellerID", "DeviceID", "OrderNumber"},
	key: func(p *purchase) []any {
		return []any{strings.Join([]string{
			padded(p.CardID, cardWidth), p.SellerID, padded(p.DeviceID, deviceWidth), padded(p.OrderNumber, orderWidth),
		}, connector)}
	},
	compare: compareByCard,
}

// byOrder finds an order by its number. Order numbers rise with time, so keyed
// by them alone all writes would hit the end of the table; the prefix spreads
// them, and whoever knows the number knows the prefix.
var byOrder = layout{
	table:  "purchases_by_order",
	about:  "an order by its number, writes spread by a hash",
	schema: []keyColumn{{"HashedOrder", text}},
	holds:  []string{"OrderNumber"},
	key: func(p *purchase) []any {
		return []any{prefix(p.OrderNumber) + connector + padded(p.OrderNumber, orderWidth)}
	},
	compare: func(a, b *purchase) int {
		return cmp.Or(cmp.Compare(prefix(a.OrderNumber), prefix(b.OrderNumber)), cmp.Compare(a.OrderNumber, b.OrderNumber))
	},
}

func compareByCard(a, b *purchase) int {
	return cmp.Or(cmp.Compare(a.CardID, b.CardID), cmp.Compare(a.SellerID, b.SellerID),
		cmp.Compare(a.DeviceID, b.DeviceID), cmp.Compare(a.OrderNumber, b.OrderNumber))
}

func padded(n int64, width int) string { return fmt.Sprintf("%0*d", width, n) }

// prefix is four hexadecimal digits that follow from an order number and do
// not rise with it.
func prefix(order int64) string {
	sum := md5.Sum(fmt.Append(nil, order))
	return fmt.Sprintf("%x", sum[:2])
}

// column is an attribute column with its value.
type column struct {
	name  string
	value any
}

// columns returns what a row has beside its key, sorted by name as the server
// returns it. Rows need not have the same columns: Kilos is there if something
// was sold by weight.
func (l *layout) columns(p *purchase) (out []column) {
	for _, c := range []column{
		{"Amount", p.Amount},
		{"At", p.At.UnixMilli()},
		{"CardID", p.CardID},
		{"DeviceID", p.DeviceID},
		{"Item", p.Item},
		{"Kilos", p.Kilos},
		{"OrderNumber", p.OrderNumber},
		{"Receipt", p.Receipt[:]},
		{"SellerID", p.SellerID},
		{"Student", p.Student},
	} {
		if !slices.Contains(l.holds, c.name) && c.value != 0.0 {
			out = append(out, c)
		}
	}
	return out
}

// primaryKey makes a key of its values. Where there are fewer values than key
// columns, the rest is the end of the range: lowest or highest.
func (l *layout) primaryKey(rest tablestore.PrimaryKeyOption, values ...any) *tablestore.PrimaryKey {
	k := new(tablestore.PrimaryKey)
	for i, c := range l.schema {
		if i < len(values) {
			k.AddPrimaryKeyColumn(c.name, values[i])
		} else {
			k.PrimaryKeys = append(k.PrimaryKeys, &tablestore.PrimaryKeyColumn{ColumnName: c.name, PrimaryKeyOption: rest})
		}
	}
	return k
}

// rowKey returns the primary key of a purchase's row.
func (l *layout) rowKey(p *purchase) *tablestore.PrimaryKey {
	return l.primaryKey(lowest, l.key(p)...)
}

// The ends of what a key column can hold.
const (
	lowest  = tablestore.MIN
	highest = tablestore.MAX
)
