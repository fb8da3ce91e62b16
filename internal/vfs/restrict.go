package vfs

// Restricter is an FS with permissions.
type Restricter interface {
	// Restrict leaves only the owner's permissions on a file or directory that another program,
	// or an earlier version, made, so that it is as Create and MkdirAll make it. A symbolic link
	// to one that others may use is an error.
	Restrict(name string) error
}

// Restrict calls Restricter.Restrict, or does nothing if the FS is no Restricter.
func Restrict(fsys FS, name string) error {
	if r, ok := fsys.(Restricter); ok {
		return r.Restrict(name)
	}
	return nil
}
