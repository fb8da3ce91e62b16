package main

// This file talks to a Table Store endpoint, this one or another, through the official SDK.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore/otsprotocol"
	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
)

const (
	// requestPatience is for how long the SDK repeats a request by itself. It does not look at a context then.
	requestPatience = 2 * time.Second
	// endpointPatience is for how long an import or an export waits for an endpoint that carries out nothing.
	endpointPatience = 5 * time.Minute
	// A request that is sent again waits firstPause, and then twice that, up to lastPause.
	firstPause, lastPause = 50 * time.Millisecond, 5 * time.Second
)

// endpointClient makes a client of an endpoint for so many workers, which repeats requests that may be repeated for as
// long as patience. The access key is that of the first place that has one.
func endpointClient(endpoint, instance string, keys []keyPlace, workers int, patience time.Duration) (*tablestore.TableStoreClient, error) {
	return endpointClientSeeing(endpoint, instance, keys, workers, patience, nil)
}

// endpointClientSeeing is endpointClient. If made is not nil, it gets when a table was made that the client describes, in
// microseconds: DescribeTable of the SDK leaves that out, because its descriptor of the message lacks the field.
func endpointClientSeeing(endpoint, instance string, keys []keyPlace, workers int, patience time.Duration, made *int64) (*tablestore.TableStoreClient, error) {
	creds, err := endpointKeyPair(endpoint, keys)
	if err != nil {
		return nil, err
	}
	config := tablestore.NewDefaultTableStoreConfig()
	config.Transport = &keyTransport{http.Transport{
		MaxIdleConnsPerHost: workers, // or else workers would make connections all the time
		IdleConnTimeout:     config.IdleConnTimeout,
		DialContext:         (&net.Dialer{Timeout: config.HTTPTimeout.ConnectionTimeout}).DialContext,
	}, creds.origin(), made}
	config.MaxRetryTime, config.RetryTimes = patience, math.MaxUint32
	return tablestore.NewClientWithConfig(withoutSlash(endpoint), instance, creds.id, creds.secret, "", config), nil
}

// keyTransport adds to refusals of an access key where it comes from, and sees when a table was made.
type keyTransport struct {
	http.Transport
	origin string
	made   *int64
}

// RoundTrip sends a request.
func (t *keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	refused := response.StatusCode == http.StatusForbidden
	described := response.StatusCode == http.StatusOK && t.made != nil && path.Base(r.URL.Path) == "DescribeTable" // behind the path of the endpoint
	if !refused && !described {
		return response, nil
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	if table := new(otspb.DescribeTableResponse); described && proto.Unmarshal(body, table) == nil {
		*t.made = table.GetCreationTime()
	}
	refusal := new(otspb.Error)
	if refused && proto.Unmarshal(body, refusal) == nil && refusal.GetCode() == ots.CodeAuthFailed {
		refusal.Message = new(refusal.GetMessage() + t.origin)
		if body, err = proto.Marshal(refusal); err != nil {
			return nil, err
		}
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return response, nil
}

// keyPlace looks for an access key in one place. If there is none, the key has no id, or the error is fs.ErrNotExist.
type keyPlace func() (credentials, error)

// environmentKey is the place of the variables whose names begin with a prefix, which is FLAGSTONE_ but for a copy's target.
func environmentKey(prefix string) keyPlace {
	return func() (credentials, error) {
		named := func(name string) string { return strings.Replace(name, "FLAGSTONE_", prefix, 1) }
		c, err := environmentCredentials(func(name string) string { return os.Getenv(named(name)) })
		c.from = named(envKeyID) + " in " + fromEnvironment
		return c, err
	}
}

// folderKey is the place of the key of the store in a folder.
func folderKey(dir string) keyPlace {
	return func() (credentials, error) { return readCredentials(filepath.Join(dir, credentialsFile)) }
}

// usualKeys are the places of a command with one endpoint.
func (a *at) usualKeys() []keyPlace {
	return a.serverKeyFirst([]keyPlace{environmentKey("FLAGSTONE_"), folderKey(a.Dir)})
}

// serverKeyFirst puts the folder's key before other places if the endpoint was found through the folder: a key of the
// environment may be for another service. A server that has its key from its environment does not take that of the folder.
func (a *at) serverKeyFirst(keys []keyPlace) []keyPlace {
	if !a.found {
		return keys
	}
	own := func() (credentials, error) {
		creds, err := folderKey(a.Dir)()
		if err == nil && a.keyID != "" && creds.id != a.keyID {
			return credentials{}, nil
		}
		return creds, err
	}
	return append([]keyPlace{own}, keys...)
}

// where names the place of an endpoint for a state file. One that was found through the folder has the folder's name: its
// address can change.
func (a *at) where(endpoint string) string {
	if a.found || endpoint == "" {
		return place(a.Dir)
	}
	return withoutSlash(endpoint)
}

// withoutSlash is an endpoint as requests need it, which add /Operation to it.
func withoutSlash(endpoint string) string { return strings.TrimRight(endpoint, "/") }

// endpointKeyPair checks an address, and finds the access key in the first place that has one.
func endpointKeyPair(endpoint string, keys []keyPlace) (creds credentials, err error) {
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return credentials{}, misuse("--endpoint is %q; write it like http://127.0.0.1:8087", endpoint)
	}
	var missing error
	for _, key := range keys {
		creds, err := key()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = err
		case err != nil || creds.id != "":
			return creds, err
		}
	}
	return credentials{}, fmt.Errorf("no access key for %s; set %s and %s, or name the directory of its store with --dir: %w", endpoint, envKeyID, envKeySecret, missing)
}

// named names the table for a state file, with when it was made, in milliseconds: another one may get its name. 0 is unknown.
func (a *ofFiles) named(made int64) string {
	at := ""
	if made != 0 {
		at = time.UnixMilli(made).UTC().Format(", made at 2006-01-02T15:04:05.000Z,")
	}
	return fmt.Sprintf("table %s%s of instance %s in %s", a.Table, at, strings.ToLower(a.Instance), a.where(a.Endpoint))
}

// keyFromSDK is the key that the SDK describes.
func keyFromSDK(schema []*tablestore.PrimaryKeySchema) (key []rowfile.Column, err error) {
	types := map[tablestore.PrimaryKeyType]row.Type{
		tablestore.PrimaryKeyType_INTEGER: row.TypeInteger, tablestore.PrimaryKeyType_STRING: row.TypeString, tablestore.PrimaryKeyType_BINARY: row.TypeBinary,
	}
	for _, k := range schema {
		key = append(key, rowfile.Column{Name: *k.Name, Type: types[*k.Type]})
	}
	return key, nil
}

// sdkValue is a value as the SDK takes it. It is a copy.
func sdkValue(v row.Value) any {
	switch v.Type() {
	case row.TypeInteger:
		return v.Int64()
	case row.TypeDouble:
		return v.Float64()
	case row.TypeBoolean:
		return v.Bool()
	case row.TypeString:
		return v.Text()
	}
	return append([]byte{}, v.Bytes()...)
}

// sdkFilter is a filter as the SDK takes it.
func sdkFilter(f *ots.Filter) tablestore.ColumnFilter {
	if f.Type == ots.FilterComposite {
		all := tablestore.NewCompositeColumnCondition(tablestore.LogicalOperator(f.Operator))
		for _, sub := range f.Subs {
			all.AddFilter(sdkFilter(sub))
		}
		return all
	}
	if f.Comparator == ots.CompareExists {
		return existsFilter(f.Column)
	}
	one := tablestore.NewSingleColumnCondition(f.Column, tablestore.ComparatorType(f.Comparator), sdkValue(f.Value))
	one.FilterIfMissing, one.LatestVersionOnly = f.FilterIfMissing, f.LatestVersionOnly
	return one
}

// existsFilter asks whether a row has a column, which the SDK has no type for.
type existsFilter string

// ToFilter is the filter in a composite one, or in a request.
func (f existsFilter) ToFilter() *otsprotocol.Filter {
	content, _ := proto.Marshal(&otspb.SingleColumnValueFilter{ // never fails
		Comparator: otspb.ComparatorType_CT_EXIST.Enum(), ColumnName: new(string(f)), ColumnValue: []byte{}, FilterIfMissing: new(true), LatestVersionOnly: new(true),
	})
	return &otsprotocol.Filter{Type: otsprotocol.FilterType_FT_SINGLE_COLUMN_VALUE.Enum(), Filter: content}
}

// Serialize encodes it.
func (f existsFilter) Serialize() []byte {
	filter := f.ToFilter()
	content, _ := proto.Marshal(&otspb.Filter{Type: otspb.FilterType(*filter.Type).Enum(), Filter: filter.Filter}) // never fails
	return content
}

// fromSDK is the opposite of sdkValue.
func fromSDK(v any) (row.Value, error) {
	switch v := v.(type) {
	case int64:
		return row.Integer(v), nil
	case float64:
		return row.Double(v), nil
	case bool:
		return row.Boolean(v), nil
	case string:
		return row.String(v), nil
	case []byte:
		return row.Binary(v), nil
	}
	return row.Value{}, fmt.Errorf("the SDK gives a value of type %T", v)
}

// retryable reports whether a code says that the same put may succeed later.
func retryable(code string) bool {
	return slices.Contains([]string{
		ots.CodeRowOperationConflict, ots.CodeCapacityUnitExhausted, ots.CodeNotEnoughCapacityUnit, ots.CodeTableNotReady, ots.CodeRequestTimeout,
		ots.CodeFlowControl, ots.CodeInternalServerError, ots.CodeServerBusy, ots.CodeStorageServerBusy, ots.CodePartitionUnavailable,
		ots.CodeTimeout, ots.CodeServerUnavailable, ots.CodeOperationThrottled,
	}, code)
}

// refusesAll reports whether a code refuses every row.
func refusesAll(code string) bool {
	return slices.Contains([]string{ots.CodeObjectNotExist, ots.CodeAuthFailed, ots.CodeNoPermissionAccess}, code)
}

// codeOf is the code of an error of the endpoint; "" if there was no answer, or that of a proxy.
func codeOf(err error) string {
	if own, ok := errors.AsType[*tablestore.OtsError](err); ok && own.Code != tablestore.OTS_CLIENT_UNKNOWN {
		return own.Code
	}
	return ""
}

// transient reports whether a request that has failed may succeed later: there was no answer, or its code says so.
func transient(err error) bool {
	code := codeOf(err)
	return code == "" || retryable(code)
}

// waiting says once that an endpoint carries out nothing. Its method is safe for concurrent use.
type waiting struct {
	out  io.Writer
	said atomic.Bool
}

// silence is for how long an endpoint may carry out nothing before that is said.
const silence = 3 * time.Second

// say says why a request is sent again that was sent first at a time.
func (w *waiting) say(begun time.Time, why error) {
	if time.Since(begun) >= silence && !w.said.Swap(true) {
		fmt.Fprintf(w.out, "flagstone: the endpoint carries out nothing (%s); requests are sent again for up to %s\n", oneLine(why), endpointPatience)
	}
}

// retry sends a request again until it succeeds, fails for good, or endpointPatience is over.
func (w *waiting) retry(ctx context.Context, request func() error) error {
	begun := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := request()
		if err == nil || !transient(err) || time.Since(begun) > endpointPatience {
			return err
		}
		w.say(begun, err)
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// wait waits for about a time, or until the context ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2)) // workers do not come back together
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
