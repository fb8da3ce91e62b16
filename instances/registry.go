package instances

// This file reads and writes the registry, the file of instances and their access keys. Only
// the process that holds the lock of the directory's store may write it; it is replaced as a
// whole. It holds secrets, so only its owner may read it.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/ots"
)

// RegistryName is the registry's name in the directory of the store.
const RegistryName = "instances"

const (
	// registryVersion is the newest version that this code reads, and the one that it writes.
	registryVersion = 1
	registryMagic   = "flagstone-instances"
	// maxRegistry is far above the size that the instances of an account need.
	maxRegistry = 1 << 20
)

// ErrCorrupt reports a damaged registry.
var ErrCorrupt = errors.New("the registry of instances is damaged")

// registry is the content of the file.
type registry struct {
	Instances []*record `json:"instances"` // by name
}

// record is one instance.
type record struct {
	Name string           `json:"name"`
	Type ots.InstanceType `json:"type"`
	// CreatedMillis is the creation time in milliseconds since the epoch; 0 if unknown.
	CreatedMillis int64 `json:"created_millis"`
	Keys          []Key `json:"keys,omitempty"`
	// Deleting: its tables are being dropped, and it serves no requests.
	Deleting bool `json:"deleting,omitempty"`
}

// Key is an access key of one instance.
type Key struct {
	ID            string `json:"id"`
	Secret        string `json:"secret"`
	CreatedMillis int64  `json:"created_millis"`
}

// encode returns the bytes of the file: a line with name, version and checksum of the rest, and
// the rest.
func (r *registry) encode() []byte {
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("instances: the registry does not encode: %v", err)) // plain data always does
	}
	body = append(body, '\n')
	return append(fmt.Appendf(nil, "%s %d %016x\n", registryMagic, registryVersion, xxhash.Sum64(body)), body...)
}

// decodeRegistry reads the output of encode. Errors match ErrCorrupt, except for a newer
// version.
func decodeRegistry(content []byte) (*registry, error) {
	line, body, _ := strings.Cut(string(content), "\n")
	var version int
	var sum uint64
	if n, _ := fmt.Sscanf(line, registryMagic+" %d %016x", &version, &sum); n < 1 {
		return nil, fmt.Errorf("%w: it does not begin with %q, a version and a checksum", ErrCorrupt, registryMagic)
	}
	if version < 1 || version > registryVersion {
		return nil, fmt.Errorf("the registry of instances has version %d, this program reads up to %d", version, registryVersion)
	}
	if xxhash.Sum64String(body) != sum {
		return nil, fmt.Errorf("%w: it does not fit its checksum", ErrCorrupt)
	}
	r := new(registry)
	if err := json.Unmarshal([]byte(body), r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	for _, in := range r.Instances {
		if in == nil || in.Type != ots.HighPerformance && in.Type != ots.Capacity {
			return nil, fmt.Errorf("%w: an instance is neither of type %s nor %s", ErrCorrupt, ots.HighPerformance, ots.Capacity)
		}
	}
	return r, nil
}

// Verify checks the registry of a directory, if there is one.
func Verify(dir string) error {
	_, _, err := loadRegistry(dir)
	return err
}

// CapacityInstance returns the name of a capacity instance that the registry of a directory lists, or "".
func CapacityInstance(dir string) (name string, err error) {
	r, _, err := loadRegistry(dir)
	if err != nil {
		return "", err
	}
	for _, in := range r.Instances {
		if in.Type == ots.Capacity {
			return in.Name, nil
		}
	}
	return "", nil
}

// loadRegistry reads the registry of a directory. found is false if there is none.
func loadRegistry(dir string) (r *registry, found bool, err error) {
	name := filepath.Join(dir, RegistryName)
	content, err := vfs.ReadFile(vfs.OS(), name, maxRegistry)
	if errors.Is(err, fs.ErrNotExist) {
		return new(registry), false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if r, err = decodeRegistry(content); err != nil {
		return nil, false, fmt.Errorf("%s: %w", name, err)
	}
	return r, true, nil
}

// save replaces the registry of a directory atomically and durably.
func (r *registry) save(dir string) error {
	return vfs.ReplaceFile(filepath.Join(dir, RegistryName), r.encode())
}

// find returns the record of an instance, including one that is being deleted. It ignores case
// unless two names differ only in case, which earlier versions allowed.
func (r *registry) find(name string) (found *record) {
	several := false
	for _, in := range r.Instances {
		if in.Name == name {
			return in
		}
		if strings.EqualFold(in.Name, name) {
			several = found != nil
			found = in
		}
	}
	if several {
		return nil
	}
	return found
}

// clone makes a copy to change, so that a change that cannot be saved has no effect.
func (r *registry) clone() *registry {
	c := &registry{Instances: make([]*record, len(r.Instances))}
	for i, in := range r.Instances {
		copied := *in
		copied.Keys = append([]Key(nil), in.Keys...)
		c.Instances[i] = &copied
	}
	return c
}
