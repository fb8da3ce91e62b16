package rowfile

// This file gives columns of a file other names.

import (
	"fmt"
	"slices"
)

// renaming reads a file whose columns have other names in the table.
type renaming struct {
	Reader
	names map[string]string // see ReadOptions.Names
	given map[string]bool   // the new names
}

// inFile returns the options of a reader that knows the file's own names.
func (o *ReadOptions) inFile() *ReadOptions {
	of := *o
	of.Key = slices.Clone(o.Key)
	for name, to := range o.Names {
		if i := keyColumn(o.Key, to); i >= 0 {
			of.Key[i].Name = name
		}
	}
	return &of
}

// rename gives the rows of a reader the names of the table.
func rename(r Reader, names map[string]string) (Reader, error) {
	var columns []string
	switch r := r.(type) {
	case *csvReader:
		for i := range r.columns {
			columns = append(columns, r.columns[i].Name)
		}
	case *parquetReader:
		for i := range r.columns {
			if r.columns[i].cell != "" { // its rows say which columns there are
				columns = nil
				break
			}
			columns = append(columns, r.columns[i].Name)
		}
	}
	given := map[string]bool{}
	for name, to := range names {
		if columns != nil && !slices.Contains(columns, name) {
			return nil, fmt.Errorf("there is no column %s, which is renamed or left out", name)
		}
		given[to] = true
	}
	return &renaming{r, names, given}, nil
}

// Next reads a row.
func (r *renaming) Next(out *Row) error {
	if err := r.Reader.Next(out); err != nil {
		return err
	}
	kept := out.Cells[:0]
	for _, c := range out.Cells {
		switch to, ok := r.names[c.Name]; {
		case ok && to == "":
			continue
		case ok:
			c.Name = to
		case r.given[c.Name]:
			return &BadRow{Line: out.Line, Err: fmt.Errorf("column %s has the name that another one is given", c.Name)}
		}
		kept = append(kept, c)
	}
	out.Cells = kept
	return nil
}
