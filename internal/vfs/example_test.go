package vfs_test

import (
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// replaceFile writes a file such that a reader finds the old or the new content, whenever the
// power fails. With syncDir false it omits a step.
func replaceFile(fsys vfs.FS, name, content string, syncDir bool) error {
	f, err := fsys.Create(name+".tmp", vfs.OpenOptions{})
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(content))
	err = errors.Join(err, f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(name+".tmp", name); err != nil || !syncDir {
		return err
	}
	return fsys.SyncDir(".")
}

// A crash test makes the change, cuts the power under every policy, and looks at what is left.
func ExampleSim_Crash() {
	for _, syncDir := range []bool{true, false} {
		sim := vfs.NewSim(vfs.SimOptions{})
		if err := replaceFile(sim, "CURRENT", "MANIFEST-000001\n", syncDir); err != nil {
			fmt.Println(err)
			return
		}
		lost := map[vfs.CrashPolicy]bool{}
		for _, policy := range vfs.CrashPolicies() {
			for seed := range uint64(20) {
				after := sim.Crash(policy, seed)
				if data, err := after.ReadFile("CURRENT"); err != nil || string(data) != "MANIFEST-000001\n" {
					lost[policy] = true
				}
			}
		}
		fmt.Printf("directory synced: %v; policies that lose the file: %d\n", syncDir, len(lost))
	}
	// Output:
	// directory synced: true; policies that lose the file: 0
	// directory synced: false; policies that lose the file: 4
}
