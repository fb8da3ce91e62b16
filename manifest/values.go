package manifest

// The accounting of value files: which table files refer to them, and how much of them is alive.
// It is derived from the descriptions of table files, so it cannot disagree with them.

func (a *applier) addValueFile(d ValueAddition) error {
	f := d.File
	switch {
	case f.Number == 0 || f.Number >= a.next.NextFile:
		return invalid("value file %d was never allocated, the next is %d", f.Number, a.next.NextFile)
	case f.Size <= 0 || f.Values == 0 || f.Bytes == 0 || f.Bytes > uint64(f.Size):
		return invalid("value file %d has size %d, with %d values of %d bytes", f.Number, f.Size, f.Values, f.Bytes)
	}
	if _, live := a.next.values.get(f.Number); live {
		return invalid("value file %d twice", f.Number)
	}
	if _, live := a.next.files.get(f.Number); live {
		return invalid("value file %d has the number of a table file", f.Number)
	}
	a.next.values.set(f.Number, ValueUsage{ValueFile: f, Table: d.Table})
	a.recounted[f.Number] = true
	return nil
}

// use checks and counts a table file that became live.
func (a *applier) use(table uint64, f *FileMeta) error {
	if _, taken := a.next.values.get(f.Number); taken {
		return invalid("file %d has the number of a value file", f.Number)
	}
	for _, use := range f.Values {
		u, known := a.next.values.get(use.File)
		switch {
		case !known:
			return invalid("file %d refers to value file %d, which is not there", f.Number, use.File)
		case u.Table != table:
			return invalid("file %d of table %d refers to value file %d of table %d", f.Number, table, use.File, u.Table)
		case use.Values > u.Values || use.Bytes > u.Bytes:
			return invalid("file %d refers to %d bytes of value file %d, which has %d", f.Number, use.Bytes, use.File, u.Bytes)
		}
	}
	a.count(f, 1)
	return nil
}

// count counts a table file that became live, or with -1 one that is not live any more. An edit
// that moves a file removes it and adds it again.
func (a *applier) count(f *FileMeta, files int) {
	for _, use := range f.Values {
		u, _ := a.next.values.get(use.File)
		u.Files += files
		u.Live += uint64(files) * use.Bytes // modulo 2^64, so -1 subtracts
		a.next.values.set(use.File, u)
		a.recounted[use.File] = true
	}
}

// dropUnused removes a value file that the edit left without a table file.
func (a *applier) dropUnused(number uint64) error {
	if u, _ := a.next.values.get(number); u.Files > 0 {
		return nil
	}
	if _, old := a.before.values.get(number); !old {
		return invalid("value file %d is added, and no table file that refers to it", number)
	}
	a.next.values.remove(number)
	return nil
}

// checkValues checks what a table file says about value files.
func checkValues(f *FileMeta) error {
	var values uint64
	for i, u := range f.Values {
		switch {
		case u.File == 0 || u.Values == 0 || u.Bytes == 0 || u.Values > f.Puts:
			return invalid("file %d: %d bytes of %d values in value file %d", f.Number, u.Bytes, u.Values, u.File)
		case i > 0 && u.File < f.Values[i-1].File:
			return invalid("file %d: value files out of order", f.Number)
		case i > 0 && u.File == f.Values[i-1].File:
			return invalid("file %d: value file %d twice", f.Number, u.File)
		}
		values += u.Values
	}
	if values > f.Puts {
		return invalid("file %d: %d values in value files, and %d puts", f.Number, values, f.Puts)
	}
	return nil
}
