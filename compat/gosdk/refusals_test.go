package gosdk_test

import (
	"strings"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore/search"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

func TestOnlyTheOwnerOfTheKeyIsServed(t *testing.T) {
	for _, c := range []struct {
		what, instance, id, secret string
		code, part                 string
	}{
		{"the owner", endpoint.Instance, endpoint.KeyID, endpoint.KeySecret, "", ""},
		{"wrong secret", endpoint.Instance, endpoint.KeyID, endpoint.KeySecret + "x", "OTSAuthFailed", "Signature mismatch."},
		{"empty secret", endpoint.Instance, endpoint.KeyID, "", "OTSAuthFailed", "Signature mismatch."},
		{"unknown key", endpoint.Instance, "nobody", endpoint.KeySecret, "OTSAuthFailed", "The AccessKeyID does not exist."},
		{"unknown instance", "elsewhere", endpoint.KeyID, endpoint.KeySecret, "OTSAuthFailed", "The instance is not found."},
	} {
		stranger := ots.NewClientWithConfig(shared.URL, c.instance, c.id, c.secret, "", noRetries())
		_, err := stranger.ListTable()
		wantError(t, c.what, err, c.code, c.part)
	}
}

// TestTheEndpointMayEndInASlashAndTheInstanceHaveAnyCase: the SDK signs the path
// alone, and the name as it was given.
func TestTheEndpointMayEndInASlashAndTheInstanceHaveAnyCase(t *testing.T) {
	name := create(t, table{}, "s")
	write(t, put(name, key("s", "r"), "c", 1))
	for _, c := range []struct{ url, instance string }{
		{shared.URL + "/", endpoint.Instance},
		{shared.URL, strings.ToUpper(endpoint.Instance)},
	} {
		other := ots.NewClientWithConfig(c.url, c.instance, endpoint.KeyID, endpoint.KeySecret, "", noRetries())
		found, err := other.DescribeTable(&ots.DescribeTableRequest{TableName: name})
		if err != nil || found.TableMeta.TableName != name {
			t.Errorf("%s, instance %s: %v", c.url, c.instance, err)
		}
	}
}

// TestWhatIsNotSupportedSaysSo: nothing is ever carried out with a part left
// out in silence.
func TestWhatIsNotSupportedSaysSo(t *testing.T) {
	name := create(t, table{}, "s")
	k := key("s", "r")
	write(t, put(name, k, "c", 1))
	made := func(change func(*ots.CreateTableRequest)) func() error {
		return func() error {
			request := table{}.request("Unsupported", "s", "i")
			change(request)
			_, err := client.CreateTable(request)
			return err
		}
	}
	for what, call := range map[string]func() error{
		"an index": made(func(r *ots.CreateTableRequest) {
			r.TableMeta.AddDefinedColumn("c", ots.DefinedColumn_INTEGER)
			r.AddIndexMeta(&ots.IndexMeta{IndexName: "Index", Primarykey: []string{"c"}})
		}),
		"search": func() error {
			_, err := client.Search(new(ots.SearchRequest).SetTableName(name).SetIndexName("index").
				SetSearchQuery(search.NewSearchQuery().SetQuery(&search.MatchAllQuery{})))
			return err
		},
		"SQL": func() error {
			_, err := client.SQLQuery(&ots.SQLQueryRequest{Query: "select * from " + name})
			return err
		},
	} {
		err := call()
		if err == nil {
			t.Errorf("%s was accepted", what)
			continue
		}
		wantError(t, what, err, "OTSParameterInvalid", "upported") // "not supported yet", "Unsupported operation"
	}
	r := get(t, name, k)
	want(t, "the row after all that was refused", text(&r.PrimaryKey, r.Columns), "(r) c=1")
	tables, err := client.ListTable()
	if err != nil {
		t.Fatal(err)
	}
	want(t, "tables", len(tables.TableNames), 1)
}
