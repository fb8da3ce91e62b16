package rowfile

// This file cuts text into records: lines, or lines that quotes join.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxRecord bounds the memory of a record. A row of 32 MiB, the most that the service reads, takes 64 MiB in
// hexadecimal.
const maxRecord = 256 << 20

// errTooLong ends a reader: what comes after such a record cannot be told from it.
var errTooLong = fmt.Errorf("a record of more than %d bytes; is a quote never closed?", maxRecord)

// records reads the records of a text.
type records struct {
	in     *bufio.Reader
	comma  byte // what separates fields of CSV, where a quoted one may hold ends of lines; 0: the text is no CSV
	most   int
	long   []byte // a record of several pieces
	begin  int64  // line of the newest record
	quoted int64  // line of the quote that was opened last
	behind Position
}

// newRecords reads records from a position on.
func newRecords(in io.Reader, comma byte, at Position) (*records, error) {
	r := &records{comma: comma, most: maxRecord, behind: at}
	if at.Offset > 0 {
		seeker, ok := in.(io.Seeker)
		if !ok {
			return nil, errors.New("a pipe cannot be read from the middle")
		}
		if _, err := seeker.Seek(at.Offset, io.SeekStart); err != nil {
			return nil, err
		}
	}
	r.in = bufio.NewReaderSize(in, 256<<10)
	if at.Offset > 0 {
		return r, nil
	}
	begin, err := r.in.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return r, r.foreign(begin)
}

// foreign says what a file is that is no text in UTF-8, by its first bytes.
func (r *records) foreign(begin []byte) error {
	if len(begin) < 2 {
		return nil
	}
	of := ""
	switch first, second := begin[0], begin[1]; {
	case first == 0x1f && second == 0x8b:
		format := JSON
		if r.comma != 0 {
			format = CSV
		}
		return fmt.Errorf("the file is packed by gzip; unpack it: zcat FILE | flagstone import TABLE - --format %s", format)
	case first == 0xff && second == 0xfe, first == 0xfe && second == 0xff: // the mark of UTF-16, which tells its order
	case second == 0 && first != 0:
		of = "LE"
	case first == 0 && second != 0:
		of = "BE"
	default:
		return nil
	}
	return fmt.Errorf("the file is UTF-16; make it UTF-8: iconv -f UTF-16%s -t UTF-8", of)
}

// next returns the next record that is not empty, without the end of its line. It is valid until the next call.
func (r *records) next() ([]byte, error) {
	for {
		record, err := r.read()
		record = bytes.TrimSuffix(bytes.TrimSuffix(record, []byte("\n")), []byte("\r"))
		if err != nil || len(record) > 0 {
			return record, err
		}
	}
}

func (r *records) read() ([]byte, error) {
	r.begin = r.behind.Line + 1
	r.long = r.long[:0]
	state := atField
	for {
		piece, err := r.in.ReadSlice('\n')
		r.behind.Offset += int64(len(piece))
		ended := err == nil
		if ended {
			r.behind.Line++
		}
		if r.comma != 0 && (state != atField || bytes.IndexByte(piece, '"') >= 0 || !ended) {
			var opened bool
			if state, opened = state.after(piece, r.comma); opened {
				r.quoted = r.behind.Line
				if !ended {
					r.quoted++
				}
			}
		}
		whole := ended && state != inQuotes
		if whole && len(r.long) == 0 {
			return piece, nil
		}
		if len(r.long)+len(piece) > r.most {
			return nil, fmt.Errorf("line %d: %w", r.begin, errTooLong)
		}
		r.long = append(r.long, piece...)
		switch {
		case whole:
			return r.long, nil
		case err == io.EOF && state == inQuotes:
			return nil, fmt.Errorf("line %d: a quote begins a field, and is never closed", r.quoted)
		case err == io.EOF && len(r.long) > 0:
			if !ended {
				r.behind.Line++
			}
			return r.long, nil
		case err != nil && err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}

// quoting is where a text of CSV is.
type quoting uint8

const (
	atField  quoting = iota // at the beginning of a field
	inField                 // in one without quotes, or behind its closing quote
	inQuotes                // in a quoted one
	atQuote                 // behind a quote in a quoted one: it ends the field, unless another quote follows
)

// after returns where the text is behind a piece, and whether the piece opens a quote.
func (q quoting) after(piece []byte, comma byte) (_ quoting, opened bool) {
	for _, c := range piece {
		opened = opened || c == '"' && q == atField
		switch {
		case q == inQuotes:
			if c == '"' {
				q = atQuote
			}
		case c == '"' && (q == atField || q == atQuote):
			q = inQuotes
		case c == comma || c == '\n':
			q = atField
		default:
			q = inField
		}
	}
	return q, opened
}
