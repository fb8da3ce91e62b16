package gosdk_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tunnel"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

// followTable is the code of docs/tunnels.md: a worker that gives apply the rows of a table, then its
// changes.
func followTable(url, instance, keyID, keySecret, table string, ended chan<- error, apply func([]*tunnel.Record) error) (*tunnel.TunnelWorkerDaemon, error) {
	client := tunnel.NewTunnelClient(url, instance, keyID, keySecret)
	described, err := client.DescribeTunnel(&tunnel.DescribeTunnelRequest{TableName: table, TunnelName: "copy"})
	var id string
	if err == nil {
		id = described.Tunnel.TunnelId
	} else {
		created, err := client.CreateTunnel(&tunnel.CreateTunnelRequest{
			TableName: table, TunnelName: "copy", Type: tunnel.TunnelTypeBaseStream,
		})
		if err != nil {
			return nil, err
		}
		id = created.TunnelId
	}
	worker := tunnel.NewTunnelDaemon(client, id, &tunnel.TunnelWorkerConfig{
		ProcessorFactory: &tunnel.SimpleProcessFactory{
			ProcessFunc: func(_ *tunnel.ChannelContext, records []*tunnel.Record) error {
				return apply(records)
			},
		},
	})
	go func() { ended <- worker.Run() }()
	return worker, nil
}

func TestTheExampleOfTheTunnelsPageIsRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/tunnels.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("tunnel_doc_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d examples", len(blocks))
	}
	indented := "\t" + strings.ReplaceAll(strings.TrimSpace(string(blocks[0][1])), "\n", "\n\t") + "\n"
	if !strings.Contains(string(source), indented) {
		t.Error("followTable is not the example of the page")
	}

	t.Chdir(t.TempDir()) // for the log file of the SDK
	name := create(t, table{}, "s")
	write(t, put(name, key("s", "old"), "c", 1))
	s, ended := newSink(), make(chan error, 1)
	worker, err := followTable(shared.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret, name, ended, func(records []*tunnel.Record) error {
		return s.take(nil, records)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.wait(t, "the row", func() bool { return s.last["old"] == 1 })
	worker.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
