package gosdk_test

// This file uses several instances on one endpoint, as programs and as whoever
// runs the server.

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

// instances is a server whose instances a test changes with the command.
type instances struct {
	t   *testing.T
	dir string
	s   *endpoint.Server
}

func startInstances(t *testing.T, flags ...string) *instances {
	t.Helper()
	in := &instances{t: t, dir: t.TempDir()}
	in.start(flags...)
	return in
}

func (in *instances) start(flags ...string) {
	in.t.Helper()
	var err error
	if in.s, err = command.Start(in.dir, flags...); err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(in.s.Kill)
}

// run runs 'flagstone instance' with arguments and returns what it prints.
func (in *instances) run(args ...string) string {
	in.t.Helper()
	out, refusal := in.try(args...)
	if refusal != "" {
		in.t.Fatalf("instance %s: %s", strings.Join(args, " "), refusal)
	}
	return out
}

// try is run for commands that may be refused.
func (in *instances) try(args ...string) (out, refusal string) {
	in.t.Helper()
	r, err := command.Run(nil, append(append([]string{"instance"}, args...), "--dir", in.dir)...)
	if err != nil {
		in.t.Fatal(err)
	}
	if r.Status != 0 {
		refusal = lastLine(r.Stderr)
	}
	return r.Stdout, refusal
}

// newKey makes an access key of an instance.
func (in *instances) newKey(instance string) (id, secret string) {
	in.t.Helper()
	out := in.run("key", "add", instance)
	if _, err := fmt.Sscanf(out, "FLAGSTONE_ACCESS_KEY_ID=%s\nFLAGSTONE_ACCESS_KEY_SECRET=%s\n", &id, &secret); err != nil {
		in.t.Fatalf("%v in %q", err, out)
	}
	return id, secret
}

func (in *instances) client(instance, id, secret string) *ots.TableStoreClient {
	return ots.NewClientWithConfig(in.s.URL, instance, id, secret, "", noRetries())
}

// account is a client with the key that opens every instance.
func (in *instances) account(instance string) *ots.TableStoreClient {
	return in.client(instance, endpoint.KeyID, endpoint.KeySecret)
}

// allowed fails the test unless a client may list tables, or is refused with
// a message.
func (in *instances) allowed(what string, c *ots.TableStoreClient, refusal string) {
	in.t.Helper()
	_, err := c.ListTable()
	code := ""
	if refusal != "" {
		code = "OTSAuthFailed"
	}
	wantError(in.t, what, err, code, refusal)
}

// TestInstancesOnOneEndpoint: they are chosen by name, made while the server
// runs, see nothing of each other, and outlive a restart.
func TestInstancesOnOneEndpoint(t *testing.T) {
	in := startInstances(t)
	in.allowed("an instance that is not there", in.account("archive"), "The instance is not found.")
	in.run("create", "archive", "--type", "capacity")
	k := key("s", "r")
	for i, name := range []string{endpoint.Instance, "archive"} {
		c := in.account(name)
		if _, err := c.CreateTable(table{}.request("T", "s")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutRow(&ots.PutRowRequest{PutRowChange: put("T", k, "c", i)}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		for i, name := range []string{endpoint.Instance, "archive"} {
			q := &ots.SingleRowQueryCriteria{TableName: "T", PrimaryKey: k, MaxVersion: 1}
			r, err := in.account(name).GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: q})
			if err != nil {
				t.Fatal(err)
			}
			want(t, when+", "+name, text(&r.PrimaryKey, r.Columns), fmt.Sprintf("(r) c=%d", i))
		}
	}
	check("at first")
	if err := in.s.Stop(); err != nil {
		t.Fatal(err)
	}
	// Without a server the command opens the store itself.
	if out := in.run("list"); !strings.Contains(out, "archive  capacity") || !strings.Contains(out, "demo     high-performance  1") {
		t.Errorf("listed\n%s", out)
	}
	in.start()
	check("after a restart")
	if _, refusal := in.try("delete", "archive"); !strings.Contains(refusal, "--with-tables") {
		t.Errorf("a deletion with tables: %q", refusal)
	}
	in.run("delete", "archive", "--with-tables")
	in.allowed("a deleted instance", in.account("archive"), "The instance is not found.")
	in.run("create", "archive")
	r, err := in.account("archive").ListTable()
	if err != nil || len(r.TableNames) != 0 {
		t.Errorf("made again it has %v, %v", r, err)
	}
}

// TestAnEndpointHasTenInstances makes the last that is allowed, and one more.
func TestAnEndpointHasTenInstances(t *testing.T) {
	in := startInstances(t)
	for i := 2; i <= 10; i++ {
		in.run("create", fmt.Sprintf("in-%d", i))
	}
	in.allowed("the tenth", in.account("in-10"), "")
	if _, refusal := in.try("create", "in-11"); !strings.Contains(refusal, "cannot exceed 10") {
		t.Errorf("the eleventh: %q", refusal)
	}
	for name, ok := range map[string]bool{"abcdefghijklmnop": true, "abc": true, "abcdefghijklmnopq": false, "ab": false, "1bc": false, "abc-": false, "a_c": false} {
		in.run("delete", "in-10")
		_, refusal := in.try("create", name)
		want(t, "name "+name, refusal == "", ok)
		if ok {
			in.run("delete", name)
		}
		in.run("create", "in-10")
	}
}

// TestKeysOfInstancesAreRotatedWhileTheServerRuns: two are good at once, for
// one instance, and none when it was removed.
func TestKeysOfInstancesAreRotatedWhileTheServerRuns(t *testing.T) {
	in := startInstances(t)
	in.run("create", "shop")
	oldID, oldSecret := in.newKey("shop")
	in.allowed("the first key", in.client("shop", oldID, oldSecret), "")
	in.allowed("the first key at another instance", in.client(endpoint.Instance, oldID, oldSecret), "The user has no privilege to access the instance.")
	in.allowed("the first key with a wrong secret", in.client("shop", oldID, oldSecret+"x"), "Signature mismatch.")
	in.allowed("the key of the account", in.account("shop"), "")
	newID, newSecret := in.newKey("shop")
	in.allowed("the first of two keys", in.client("shop", oldID, oldSecret), "")
	in.allowed("the second of two keys", in.client("shop", newID, newSecret), "")
	if _, refusal := in.try("key", "add", "shop"); !strings.Contains(refusal, "has 2 access keys") {
		t.Errorf("a third key: %q", refusal)
	}
	in.run("key", "remove", "shop", oldID)
	in.allowed("a removed key", in.client("shop", oldID, oldSecret), "The AccessKeyID does not exist.")
	in.allowed("the key that is left", in.client("shop", newID, newSecret), "")
	if out := in.run("key", "list", "shop"); !strings.HasPrefix(out, newID) || strings.Contains(out, newSecret) || strings.Contains(out, oldID) {
		t.Errorf("listed %q", out)
	}
	for _, name := range []string{"instances", "admin"} {
		info, err := os.Stat(filepath.Join(in.dir, name))
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	in.s.Kill() // what was acknowledged has survived
	in.start()
	in.allowed("the key after a kill", in.client("shop", newID, newSecret), "")
	in.allowed("the removed key after a kill", in.client("shop", oldID, oldSecret), "The AccessKeyID does not exist.")
}

// TestCapacityInstancesHaveNoReservedThroughput: everything else is as in the
// other type.
func TestCapacityInstancesHaveNoReservedThroughput(t *testing.T) {
	in := startInstances(t)
	in.run("create", "archive", "--type", "capacity")
	c := in.account("archive")
	reserving := table{}.request("T", "s")
	reserving.ReservedThroughput = &ots.ReservedThroughput{Readcap: 1}
	_, err := c.CreateTable(reserving)
	wantError(t, "a table with a reserved unit", err, "OTSParameterInvalid", "The value of read capacity unit can not be greater than 0.")
	if _, err := c.CreateTable(table{}.request("T", "s")); err != nil {
		t.Fatal(err)
	}
	_, err = c.UpdateTable(&ots.UpdateTableRequest{TableName: "T", ReservedThroughput: &ots.ReservedThroughput{Writecap: 1}})
	wantError(t, "a unit reserved later", err, "OTSForbiddenUpdateCapacityUnit", "")
	_, err = c.UpdateTable(&ots.UpdateTableRequest{TableName: "T", TableOption: ots.NewTableOption(86400, 2)})
	wantError(t, "other options", err, "", "")
}
