package main

// This file is the command tunnel: the data tunnels of tables at an endpoint. It sends the few requests by itself, since
// the SDK's package of tunnels brings five modules for its workers.

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/signature"
	"github.com/flagstone-db/flagstone/server/tunnelpb"
)

type tunnelCommand struct {
	List     tunnelListCommand     `cmd:"" help:"List the tunnels of a table, or of all."`
	Describe tunnelDescribeCommand `cmd:"" help:"Show a tunnel and its channels."`
	Create   tunnelCreateCommand   `cmd:"" help:"Make a tunnel. A table without a stream gets one, unless the tunnel is for rows alone."`
	Delete   tunnelDeleteCommand   `cmd:"" help:"Delete a tunnel. Its workers end, and the stream of the table stays."`
}

// Help is the long help of the command.
func (tunnelCommand) Help() string {
	return `A tunnel delivers the rows or the changes of a table to workers of the SDK; docs/tunnels.md describes it.

  flagstone tunnel create orders copy --type BaseAndStream
  flagstone tunnel list
  flagstone tunnel describe orders copy
  flagstone tunnel delete orders copy --yes`
}

type tunnelListCommand struct {
	atEndpoint
	Table string `arg:"" optional:"" help:"Only the tunnels of this table."`
	JSON  bool   `name:"json" help:"Print a line of JSON for each tunnel."`
}

// tunnelLine is a tunnel as JSON.
type tunnelLine struct {
	Table    string        `json:"table"`
	Name     string        `json:"name"`
	Type     string        `json:"type"`
	Stage    string        `json:"stage"`
	Expired  bool          `json:"expired"`
	Made     string        `json:"made"`
	ID       string        `json:"id"`
	Channels []channelLine `json:"channels,omitempty"`
}

type channelLine struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`
	Client string `json:"client"` // "": none has it
}

func tunnelLineOf(t *tunnelpb.TunnelInfo) *tunnelLine {
	return &tunnelLine{
		Table: t.GetTableName(), Name: t.GetTunnelName(), Type: t.GetTunnelType(), Stage: t.GetStage(), Expired: t.GetExpired(),
		Made: moment(t.GetCreateTime() / int64(time.Millisecond)), ID: t.GetTunnelId(),
	}
}

// Run prints the tunnels.
func (l *tunnelListCommand) Run(ctx context.Context, c *output) error {
	answer := new(tunnelpb.ListTunnelResponse)
	if err := l.tunnel(ctx, "list", &tunnelpb.ListTunnelRequest{TableName: &l.Table}, answer); err != nil {
		return err
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	if !l.JSON {
		fmt.Fprintln(w, "TABLE\tNAME\tTYPE\tSTAGE\tEXPIRED\tMADE\tID")
	}
	for _, t := range answer.Tunnels {
		line := tunnelLineOf(t)
		if l.JSON {
			if err := c.jsonLine(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%t\t%s\t%s\n", lineText(line.Table), lineText(line.Name), line.Type, line.Stage, line.Expired, line.Made, line.ID)
	}
	return w.Flush()
}

// ofTunnel names a tunnel.
type ofTunnel struct {
	atEndpoint
	Table string `arg:"" predictor:"table" help:"The table."`
	Name  string `arg:"" help:"The tunnel."`
}

type tunnelDescribeCommand struct {
	ofTunnel
	JSON bool `name:"json" help:"Print the tunnel as JSON."`
}

// Run prints the tunnel.
func (d *tunnelDescribeCommand) Run(ctx context.Context, c *output) error {
	answer := new(tunnelpb.DescribeTunnelResponse)
	if err := d.tunnel(ctx, "describe", &tunnelpb.DescribeTunnelRequest{TableName: &d.Table, TunnelName: &d.Name}, answer); err != nil {
		return err
	}
	line := tunnelLineOf(answer.Tunnel)
	for _, ch := range answer.Channels {
		line.Channels = append(line.Channels, channelLine{ch.GetChannelId(), ch.GetChannelType(), ch.GetChannelStatus(), ch.GetClientId()})
	}
	if d.JSON {
		return c.json(line)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "table\t%s\nname\t%s\nid\t%s\ntype\t%s\nstage\t%s\nexpired\t%t\nmade\t%s\n",
		lineText(line.Table), lineText(line.Name), line.ID, line.Type, line.Stage, line.Expired, line.Made)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nCHANNEL\tSTATUS\tCLIENT")
	for _, ch := range line.Channels {
		fmt.Fprintf(w, "%s\t%s\t%s\n", ch.ID, ch.Status, ch.Client)
	}
	return w.Flush()
}

type tunnelCreateCommand struct {
	ofTunnel
	Type string `enum:"BaseData,Stream,BaseAndStream" default:"Stream" placeholder:"TYPE" help:"BaseData: the rows; Stream: the changes from now on; BaseAndStream: the rows, then the changes. ${default} if not given."`
}

// Run makes a tunnel.
func (m *tunnelCreateCommand) Run(ctx context.Context, c *output) error {
	kinds := map[string]tunnelpb.TunnelType{}
	for _, t := range [...]tunnel.Type{tunnel.Base, tunnel.Stream, tunnel.BaseAndStream} {
		kinds[t.String()] = tunnelpb.TunnelType(t)
	}
	answer := new(tunnelpb.CreateTunnelResponse)
	err := m.tunnel(ctx, "create", &tunnelpb.CreateTunnelRequest{
		Tunnel: &tunnelpb.Tunnel{TableName: &m.Table, TunnelName: &m.Name, TunnelType: kinds[m.Type].Enum()},
	}, answer)
	if err != nil {
		return err
	}
	if answer.GetTunnelId() == "" {
		return errors.New("the endpoint answers with an empty id of the tunnel")
	}
	_, err = fmt.Fprintln(c.out, answer.GetTunnelId())
	return err
}

type tunnelDeleteCommand struct {
	ofTunnel
	Yes bool `help:"Delete it: its workers end, and its checkpoints are gone."`
}

// Run deletes a tunnel.
func (d *tunnelDeleteCommand) Run(ctx context.Context, _ *output) error {
	if !d.Yes {
		return misuse("this deletes tunnel %s of table %s with its checkpoints; repeat it with --yes", d.Name, d.Table)
	}
	return d.tunnel(ctx, "delete", &tunnelpb.DeleteTunnelRequest{TableName: &d.Table, TunnelName: &d.Name}, new(tunnelpb.DeleteTunnelResponse))
}

const (
	// tunnelPatience bounds a request. The creation of a tunnel looks up its place in each shard of a stream.
	tunnelPatience = time.Minute
	// mostTunnelAnswer bounds an answer, in bytes.
	mostTunnelAnswer = 64 << 20
)

// tunnelClient follows no redirect: a signed request is for the endpoint alone.
var tunnelClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// tunnel sends a request.
func (a *atEndpoint) tunnel(ctx context.Context, operation string, request, answer proto.Message) error {
	if err := a.locate(ctx); err != nil {
		return err
	}
	creds, err := endpointKeyPair(a.Endpoint, a.usualKeys())
	if err != nil {
		return err
	}
	body, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tunnelPatience)
	defer cancel()
	path := "/tunnel/" + operation
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(a.Endpoint, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	sum := md5.Sum(body)
	fields := []signature.Field{
		{Name: "x-ots-accesskeyid", Value: creds.id},
		{Name: "x-ots-apiversion", Value: "2018-04-01"},
		{Name: "x-ots-contentmd5", Value: base64.StdEncoding.EncodeToString(sum[:])},
		{Name: "x-ots-date", Value: time.Now().UTC().Format("2006-01-02T15:04:05.000Z")},
		{Name: "x-ots-instancename", Value: a.Instance},
	}
	for _, f := range fields {
		r.Header.Set(f.Name, f.Value)
	}
	r.Header.Set(signature.HeaderV2, signature.Sign(creds.secret, signature.AppendRequest(nil, path, fields)))
	response, err := tunnelClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, mostTunnelAnswer+1))
	switch {
	case err != nil:
		return err
	case len(content) > mostTunnelAnswer:
		return errors.New("the answer of the endpoint is too long")
	case response.StatusCode != http.StatusOK:
		refusal := new(otspb.Error)
		if err := proto.Unmarshal(content, refusal); err != nil || refusal.GetCode() == "" {
			return fmt.Errorf("the endpoint answers %s", response.Status)
		}
		if refusal.GetCode() == ots.CodeAuthFailed {
			refusal.Message = new(refusal.GetMessage() + creds.origin())
		}
		return &ots.Error{Code: refusal.GetCode(), Message: refusal.GetMessage()}
	}
	return proto.Unmarshal(content, answer)
}
