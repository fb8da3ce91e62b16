package vfs

import (
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// ParseNumber returns the number, 1 or more, of which nameOf makes the name. The number's decimal
// digits are the only ones in the last part of the name. Slashes are accepted on every system.
func ParseNumber(name string, nameOf func(number uint64) string) (number uint64, ok bool) {
	name = filepath.ToSlash(name)
	digits := strings.TrimFunc(path.Base(name), func(r rune) bool { return r < '0' || r > '9' })
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil && number > 0 && name == filepath.ToSlash(nameOf(number))
}
