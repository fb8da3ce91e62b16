package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/keydesign"
	"github.com/flagstone-db/flagstone/ots"
)

// ErrNoServer says that no server has the home open, or that it does not answer.
var ErrNoServer = errors.New("no server answers")

// Client changes a home that a server has open.
type Client struct {
	at   address
	http http.Client
}

// Connect finds the server of the home in dir. The error matches ErrNoServer if there is none.
func Connect(ctx context.Context, dir string) (*Client, error) {
	at, err := readAddress(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	if err != nil {
		return nil, err
	}
	c := &Client{at: at}
	// The door is on this machine: use no proxy.
	c.http.Transport = &http.Transport{Proxy: nil}
	// The door never redirects; a program that does is another one.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := c.List(limited); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Endpoint is the address at which the server answers requests of Table Store clients of this machine.
func (c *Client) Endpoint() string { return c.at.Endpoint }

// KeyID is the id of the account's access key at that address; "" if the server is older than this method.
func (c *Client) KeyID() string { return c.at.KeyID }

// List is instances.Home.List.
func (c *Client) List(ctx context.Context) (infos []instances.Info, err error) {
	err = c.call(ctx, "GET", "/instances", nil, nil, &infos)
	return infos, err
}

// Create is instances.Home.Create.
func (c *Client) Create(ctx context.Context, name string, kind ots.InstanceType) error {
	return c.call(ctx, "POST", "/instances", nil, createBody{Name: name, Type: kind}, nil)
}

// Delete is instances.Home.Delete.
func (c *Client) Delete(ctx context.Context, name string, withTables bool) error {
	query := url.Values{"instance": {name}}
	if withTables {
		query.Set("tables", "yes")
	}
	return c.call(ctx, "DELETE", "/instances", query, nil, nil)
}

// AddKey is instances.Home.AddKey.
func (c *Client) AddKey(ctx context.Context, instance string) (key instances.Key, err error) {
	err = c.call(ctx, "POST", "/keys", url.Values{"instance": {instance}}, nil, &key)
	return key, err
}

// RemoveKey is instances.Home.RemoveKey.
func (c *Client) RemoveKey(ctx context.Context, instance, id string) error {
	return c.call(ctx, "DELETE", "/keys", url.Values{"instance": {instance}, "id": {id}}, nil, nil)
}

// KeyReport is instances.Home.KeyReport.
func (c *Client) KeyReport(ctx context.Context, instance, table string, rows int) (*keydesign.Report, error) {
	report := new(keydesign.Report)
	query := url.Values{"instance": {instance}, "table": {table}, "rows": {strconv.Itoa(rows)}}
	if err := c.call(ctx, "GET", "/report", query, nil, report); err != nil {
		return nil, err
	}
	return report, nil
}

// Figures is instances.Home.Figures.
func (c *Client) Figures(ctx context.Context) (figures map[ots.InstanceType]flagstone.Metrics, err error) {
	err = c.call(ctx, "GET", "/figures", nil, nil, &figures)
	return figures, err
}

// Tables is instances.Home.Tables.
func (c *Client) Tables(ctx context.Context, instance string) (list []instances.Table, err error) {
	err = c.call(ctx, "GET", "/tables", url.Values{"instance": {instance}}, nil, &list)
	return list, err
}

// Table is instances.Home.Table.
func (c *Client) Table(ctx context.Context, instance, table string) (*instances.Table, error) {
	t := new(instances.Table)
	if err := c.call(ctx, "GET", "/table", url.Values{"instance": {instance}, "table": {table}}, nil, t); err != nil {
		return nil, err
	}
	return t, nil
}

// CreateTable is instances.Home.CreateTable.
func (c *Client) CreateTable(ctx context.Context, instance string, t *instances.NewTable) error {
	return c.call(ctx, "POST", "/tables", url.Values{"instance": {instance}}, t, nil)
}

// AlterTable is instances.Home.AlterTable.
func (c *Client) AlterTable(ctx context.Context, instance, table string, change *instances.TableChange) error {
	return c.call(ctx, "PATCH", "/table", url.Values{"instance": {instance}, "table": {table}}, change, nil)
}

// DropTable is instances.Home.DropTable.
func (c *Client) DropTable(ctx context.Context, instance, table string) error {
	return c.call(ctx, "DELETE", "/table", url.Values{"instance": {instance}, "table": {table}}, nil, nil)
}

// FlushTable is instances.Home.FlushTable.
func (c *Client) FlushTable(ctx context.Context, instance, table string) error {
	return c.call(ctx, "POST", "/flush", url.Values{"instance": {instance}, "table": {table}}, nil, nil)
}

// CompactTable is instances.Home.CompactTable.
func (c *Client) CompactTable(ctx context.Context, instance, table string) error {
	return c.call(ctx, "POST", "/compact", url.Values{"instance": {instance}, "table": {table}}, nil, nil)
}

// Files is instances.Home.Files.
func (c *Client) Files(ctx context.Context, instance, table string) (list []instances.File, err error) {
	err = c.call(ctx, "GET", "/files", url.Values{"instance": {instance}, "table": {table}}, nil, &list)
	return list, err
}

// Console returns the address of the server's console. It is good for one browser, within five minutes.
func (c *Client) Console(ctx context.Context) (url string, err error) {
	var path string
	err = c.call(ctx, "POST", "/console", nil, nil, &path)
	return c.at.URL + path, err
}

// EndSessions ends all sessions of the console, and makes links that were not used useless.
func (c *Client) EndSessions(ctx context.Context) error {
	return c.call(ctx, "DELETE", "/console", nil, nil, nil)
}

// Rows is instances.Home.Rows.
func (c *Client) Rows(ctx context.Context, instance string, q *instances.Query) (*instances.Page, error) {
	page := new(instances.Page)
	if err := c.call(ctx, "POST", "/rows", url.Values{"instance": {instance}}, q, page); err != nil {
		return nil, err
	}
	return page, nil
}

// Change is instances.Home.Change. The server may carry out a change whose caller did not wait for the answer.
func (c *Client) Change(ctx context.Context, instance string, change *instances.Change) (key []instances.KeyValue, err error) {
	err = c.call(ctx, "POST", "/change", url.Values{"instance": {instance}}, change, &key)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", flagstone.ErrOutcomeUnknown, err)
	}
	return key, err
}

// Partitions is instances.Home.Partitions.
func (c *Client) Partitions(ctx context.Context, instance, table string) (list []instances.Partition, err error) {
	err = c.call(ctx, "GET", "/partitions", url.Values{"instance": {instance}, "table": {table}}, nil, &list)
	return list, err
}

// Streams is instances.Home.Streams.
func (c *Client) Streams(ctx context.Context, instance, table string) (s *instances.Streams, err error) {
	err = c.call(ctx, "GET", "/streams", url.Values{"instance": {instance}, "table": {table}}, nil, &s)
	return s, err
}

// Split is instances.Home.Split.
func (c *Client) Split(ctx context.Context, instance, table, at string) error {
	return c.call(ctx, "POST", "/partitions", url.Values{"instance": {instance}, "table": {table}, "at": {at}}, nil, nil)
}

// Merge is instances.Home.Merge.
func (c *Client) Merge(ctx context.Context, instance, table, at string) error {
	return c.call(ctx, "DELETE", "/partitions", url.Values{"instance": {instance}, "table": {table}, "at": {at}}, nil, nil)
}

// Checkpoint is instances.Home.Checkpoint. The server deletes the checkpoint also when this process ends.
func (c *Client) Checkpoint(ctx context.Context) (*instances.Checkpoint, error) {
	resp, err := c.send(ctx, "POST", "/checkpoint", nil, nil)
	if err != nil {
		return nil, err
	}
	made := &instances.Checkpoint{Release: resp.Body.Close}
	if err := c.decode(resp, &made.Within); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	return made, nil
}

// KeepLogs is instances.Home.KeepLogs.
func (c *Client) KeepLogs(ctx context.Context, limit int64) error {
	return c.call(ctx, "PUT", "/log", url.Values{"limit": {strconv.FormatInt(limit, 10)}}, nil, nil)
}

// KeptLogs is instances.Home.KeptLogs.
func (c *Client) KeptLogs(ctx context.Context) (list []instances.StoreLog, err error) {
	err = c.call(ctx, "POST", "/log", nil, nil, &list)
	return list, err
}

// LogShipped is instances.Home.LogShipped.
func (c *Client) LogShipped(ctx context.Context, log instances.StoreLog) error {
	log.Notes = nil
	return c.call(ctx, "DELETE", "/log", nil, log, nil)
}

// TakeTable is instances.Home.TakeTable. The server gives up also when this process ends.
func (c *Client) TakeTable(ctx context.Context, within, instance, table string) error {
	return c.call(ctx, "POST", "/arrivals", url.Values{"within": {within}, "instance": {instance}, "table": {table}}, nil, nil)
}

// Check is instances.Home.Check. The server ends the check also when this process ends.
func (c *Client) Check(ctx context.Context, bytesPerSecond int64, tell func(instances.CheckStep)) error {
	resp, err := c.send(ctx, "POST", "/check", url.Values{"rate": {strconv.FormatInt(bytesPerSecond, 10)}}, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.decode(resp, nil)
	}
	for lines := json.NewDecoder(resp.Body); ; {
		var line checkLine
		switch err := lines.Decode(&line); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("%w any more: the check did not end: %w", ErrNoServer, err)
		case line.Failed != nil:
			return line.Failed.asError()
		case line.Over:
			return nil
		case line.CheckStep != nil:
			tell(*line.CheckStep)
		}
	}
}

// call sends one request and decodes its answer; in and out may be nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	resp, err := c.send(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.decode(resp, out)
}

// send sends one request; in may be nil.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.at.URL+path+"?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.at.Token)
	resp, err := c.http.Do(r)
	if errors.Is(err, context.Canceled) {
		return nil, err // which says nothing of the server
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, errors.Join(fmt.Errorf("%w: another program listens on %s", ErrNoServer, c.at.URL), resp.Body.Close())
	}
	return resp, nil
}

// decode decodes an answer, also of a refusal; out may be nil.
func (c *Client) decode(resp *http.Response, out any) error {
	const most = 256 << 20 // a row of 32 MiB as JSON has at most six times as much
	decoder := json.NewDecoder(io.LimitReader(resp.Body, most))
	if resp.StatusCode == http.StatusOK {
		if out == nil {
			return nil
		}
		if err := decoder.Decode(out); err != nil {
			return fmt.Errorf("%w: %s does not answer as one does: %w", ErrNoServer, c.at.URL, err)
		}
		return nil
	}
	var p problem
	if err := decoder.Decode(&p); err != nil || p.Error == "" {
		return fmt.Errorf("%w: %s answers %s", ErrNoServer, c.at.URL, resp.Status)
	}
	return p.asError()
}

// remoteError is an error from the server: its text and its kind.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

func (p *problem) asError() error {
	e := &remoteError{text: p.Error}
	for _, k := range kinds {
		if k.name == p.Kind {
			e.kind = k.err
		}
	}
	return e
}
