package ots

// This file reads ranges of rows in pages (PROTOCOL 5.6). One scan reads a page, so a page
// shows one moment; the next page is another request and another moment.

import (
	"context"
	"errors"
	"slices"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// GetRange reads one page of a range, in either direction.
func (e *Engine) GetRange(ctx context.Context, instance string, req *GetRangeRequest) (*GetRangeResponse, error) {
	sel, bad := e.limits.checkRange(req)
	if bad != nil {
		return nil, bad
	}
	t, bad := e.table(instance, req.Table)
	if bad != nil {
		return nil, bad
	}
	for _, bound := range []*Row{&req.Start, &req.End} {
		if err := matchKey(t.key, bound.Key); err != nil {
			return nil, err
		}
	}
	s, bad := e.take(instance, req.TransactionID)
	if bad != nil {
		return nil, bad
	}
	defer s.leave()
	for _, bound := range []*Row{&req.Start, &req.End} {
		if err := s.covers(t, bound.Key); err != nil {
			return nil, err
		}
	}
	start, end := keyTuple(req.Start.Key), keyTuple(req.End.Key)
	order, err := compareKeys(len(t.key), start, end)
	switch {
	case err != nil:
		return nil, e.asError(err, "get range", t.name, false)
	case !req.Backward && order >= 0:
		return nil, invalid("Begin key must less than end key in FORWARD")
	case req.Backward && order <= 0:
		return nil, invalid("Begin key must more than end key in BACKWARD")
	}
	partition := req.Start.Key[0].Value
	single := !isBound(partition.Type()) && !isBound(req.End.Key[0].Value.Type()) && compareValues(partition, req.End.Key[0].Value) == 0
	refusal := e.admitTable(t, reads)
	if single {
		refusal = e.admit(t, partition, reads)
	}
	if refusal != nil {
		return nil, refusal
	}
	page := rangePage{projection: sel.on(t, s), limits: &e.limits, names: interner{}}
	page.busy.counts = !single && countsBusy()
	if req.Limit != nil {
		page.limit = int(*req.Limit)
	}
	rows := e.limits.RangeRows
	if page.limit > 0 {
		rows = page.limit
	}
	if err := takeTurn(ctx, rows, page.filter); err != nil {
		return nil, err
	}
	page.partialKeys = req.ReturnEntirePrimaryKeys != nil && !*req.ReturnEntirePrimaryKeys && slices.Contains(page.keyColumns, true)
	if err := page.readInRoom(ctx, start, end, req.Backward); err != nil {
		return nil, e.asError(err, "get range", t.name, false)
	}
	resp := &GetRangeResponse{Rows: page.rows, Next: page.next, Consumed: readCost(page.scannedBytes)}
	if single {
		e.chargeRow(t, partition, resp.Consumed)
		return resp, nil
	}
	e.charge(t, resp.Consumed)
	if len(page.busy.keys) == 0 && !isBound(partition.Type()) {
		page.busy.add(partition) // a page without rows
	}
	if len(page.busy.keys) > 0 {
		e.addBusy(t, page.busy.keys, resp.Consumed)
	}
	return resp, nil
}

// checkRange checks what does not depend on the table.
func (l *Limits) checkRange(req *GetRangeRequest) (reading, *Error) {
	if err := l.checkTableName(req.Table); err != nil {
		return reading{}, err
	}
	for _, bound := range []*Row{&req.Start, &req.End} {
		if bound.DeleteMarker {
			return reading{}, invalid("Delete marker cannot be given.")
		}
		if len(bound.Cells) > 0 {
			return reading{}, invalid("Attribute column cannot be given while reading data.")
		}
		if err := l.checkKey(bound.Key, keyOfBound); err != nil {
			return reading{}, err
		}
	}
	if req.Limit != nil && *req.Limit <= 0 {
		return reading{}, invalid("The limit must be greater than 0.")
	}
	return l.checkSelection(&req.Selection, versionMissing)
}

// rangePage is one page while it is read.
type rangePage struct {
	projection
	limits      *Limits
	limit       int  // 0: the client set no limit
	partialKeys bool // return only the key columns that are listed, at least one (PROTOCOL 3.1)
	names       interner
	room        pageRoom
	busy        pageKeys

	scannedRows  int
	scannedBytes int64
	rows         []Row
	next         []KeyValue
}

// readInRoom reads the page within the room of the request. If the first row exceeds the limit
// of a page, the page holds this row alone.
func (p *rangePage) readInRoom(ctx context.Context, start, end []row.Value, backward bool) error {
	room := RoomOf(ctx)
	var err error
	for _, most := range [...]int64{int64(p.limits.RangeBytes), p.limits.ReadRowBytes} {
		p.options.MaxBytes = min(most, p.limits.ReadRowBytes)
		p.room = pageRoom{room, answerCopies * p.options.MaxBytes}
		if err := room.Take(ctx, p.room.left); err != nil {
			return err
		}
		err = p.read(ctx, start, end, backward)
		room.Give(p.room.left)
		if p.scannedRows > 0 || !errors.Is(err, flagstone.ErrRowTooLarge) {
			break
		}
	}
	return err
}

// read fills the page. It ends at the client's limit, at the limits of a page, when the room is
// used up, or at the end of the range.
func (p *rangePage) read(ctx context.Context, start, end []row.Value, backward bool) error {
	scan := p.session.source(p.table).Scan(ctx, start, end, flagstone.ScanOptions{
		ReadOptions: p.options, Reverse: backward, MaxExamined: p.limits.RangeCells,
	})
	defer scan.Close()
	for scan.Next() {
		found := scan.Row()
		size := p.size(found)
		if p.full(size, scan.Examined()) {
			p.next = copyKey(nameKey(p.table.key, found.Key()))
			return scan.Close()
		}
		selected, ok, err := p.selects(ctx, found)
		if err == nil && ok && !p.room.has(selected) {
			p.next = copyKey(nameKey(p.table.key, found.Key()))
			return scan.Close()
		}
		p.scannedRows++
		p.scannedBytes += size
		p.busy.add(found.Key()[0])
		if err == nil && ok {
			err = p.add(found, selected)
		}
		if err != nil {
			return err
		}
	}
	if err := scan.Err(); errors.Is(err, flagstone.ErrRowTooLarge) && p.scannedRows > 0 {
		p.next = copyKey(nameKey(p.table.key, scan.Row().Key())) // the large row starts the next page
		return scan.Close()
	} else if err != nil {
		return err
	}
	if key, paused := scan.Paused(); paused { // among deleted rows
		p.next = copyKey(nameKey(p.table.key, key))
	}
	return scan.Close()
}

// full reports whether the page ends before a row of the given size. A page always takes its
// first row, however large, so that a client makes progress.
func (p *rangePage) full(size, examined int64) bool {
	if p.scannedRows == 0 {
		return false
	}
	return p.limit > 0 && len(p.rows) >= p.limit ||
		p.scannedRows >= p.limits.RangeRows || p.filter.exhausted() ||
		p.scannedBytes+size > int64(p.limits.RangeBytes) ||
		examined >= p.limits.RangeCells
}

// add copies a row into the answer, since the scan reuses the row's memory.
func (p *rangePage) add(found *flagstone.Row, selected []row.Cell) error {
	cells, err := convert(selected, p.names)
	if err != nil {
		return err
	}
	size := 0
	for i := range cells {
		size += len(cells[i].Value.Bytes())
	}
	buffer := make([]byte, 0, size)
	for i := range cells {
		cells[i].Value, buffer = copyValue(cells[i].Value, buffer)
	}
	key := copyKey(nameKey(p.table.key, found.Key()))
	if p.partialKeys {
		listed := key[:0]
		for i := range key {
			if p.keyColumns[i] {
				listed = append(listed, key[i])
			}
		}
		key = listed
	}
	p.rows = append(p.rows, Row{Key: key, Cells: cells})
	return nil
}

// copyValue moves a value's bytes to the end of buffer, which must have room.
func copyValue(v row.Value, buffer []byte) (row.Value, []byte) {
	from := len(buffer)
	switch v.Type() {
	case row.TypeString:
		buffer = append(buffer, v.Bytes()...)
		return row.StringBytes(buffer[from:len(buffer):len(buffer)]), buffer
	case row.TypeBinary:
		buffer = append(buffer, v.Bytes()...)
		return row.Binary(buffer[from:len(buffer):len(buffer)]), buffer
	}
	return v, buffer
}

// copyKey gives the values of a key memory of their own, in place.
func copyKey(key []KeyValue) []KeyValue {
	for i := range key {
		key[i].Value = key[i].Value.Clone()
	}
	return key
}
