package vfs

// Restricter is what an FS may offer: permissions.
type Restricter interface {
	// Restrict takes from all but its owner the permissions to a file or a
	// directory that others made, or an earlier version, so that it is as Create and
	// MkdirAll make it. A symbolic link to one that others may use is an error.
	Restrict(name string) error
}

// Restrict is Restricter.Restrict; where that is not offered it does nothing.
func Restrict(fsys FS, name string) error {
	if r, ok := fsys.(Restricter); ok {
		return r.Restrict(name)
	}
	return nil
}
