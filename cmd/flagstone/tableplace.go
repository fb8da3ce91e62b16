package main

// This file makes and changes tables wherever they lie: in a folder that is held, or at an endpoint.

import (
	"context"
	"errors"
	"fmt"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
)

// locate finds the endpoint of the server that has the folder open, if there is one and no endpoint is named.
func (a *ofFiles) locate(ctx context.Context, c *output) error {
	if a.Endpoint != "" {
		return nil
	}
	endpoint, err := a.endpoint(ctx)
	if errors.Is(err, admin.ErrNoServer) {
		return nil
	}
	if err == nil {
		a.Endpoint = endpoint
		fmt.Fprintf(c.err, "flagstone: a server has %s open; asking it, at %s\n", a.Dir, endpoint)
	}
	return err
}

// client makes a client of the endpoint.
func (a *ofFiles) client(workers int) (*tablestore.TableStoreClient, error) {
	return a.clientSeeing(workers, nil)
}

func (a *ofFiles) clientSeeing(workers int, made *int64) (*tablestore.TableStoreClient, error) {
	keys := a.serverKeyFirst(a.keys)
	if a.keys == nil {
		keys = a.usualKeys()
	}
	return endpointClientSeeing(a.Endpoint, a.Instance, keys, workers, requestPatience, made)
}

// hold opens the folder, if the table is in one, for this process until release. All that is done with a meanwhile finds it
// open.
func (a *ofFiles) hold(ctx context.Context, readOnly bool) (release func() error, err error) {
	if a.Endpoint != "" {
		return func() error { return nil }, nil
	}
	if a.held, err = a.openFolder(ctx, readOnly); err != nil {
		return nil, err
	}
	return a.held.Close, nil
}

// folder is the folder that is held, or opens it. The caller calls release at the end.
func (a *ofFiles) folder(ctx context.Context, readOnly bool) (home *instances.Home, release func() error, err error) {
	if a.held != nil {
		return a.held, func() error { return nil }, nil
	}
	home, err = a.openFolder(ctx, readOnly)
	if err != nil {
		return nil, nil, err
	}
	return home, home.Close, nil
}

// describe reads the key and the options of the table.
func (a *ofFiles) describe(ctx context.Context) (t *instances.Table, err error) {
	if a.Endpoint == "" {
		return a.held.Table(ctx, a.Instance, a.Table)
	}
	return a.describeServed()
}

// describeServed reads them from the endpoint.
func (a *ofFiles) describeServed() (*instances.Table, error) {
	made := int64(0)
	client, err := a.clientSeeing(1, &made)
	if err != nil {
		return nil, err
	}
	described, err := client.DescribeTable(&tablestore.DescribeTableRequest{TableName: a.Table})
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", a.Table, err)
	}
	key, err := keyFromSDK(described.TableMeta.SchemaEntry)
	t := &instances.Table{
		Name: a.Table, TimeToLive: int32(described.TableOption.TimeToAlive), MaxVersions: int32(described.TableOption.MaxVersion),
		MaxVersionOffset: described.TableOption.DeviationCellVersionInSec, CreatedMillis: made / 1000,
	}
	for i, k := range key {
		option := described.TableMeta.SchemaEntry[i].Option
		auto := option != nil && *option == tablestore.AUTO_INCREMENT
		t.Key = append(t.Key, instances.KeyColumn{Name: k.Name, Type: k.Type.String(), AutoIncrement: auto})
	}
	if described.StreamDetails != nil && described.StreamDetails.EnableStream {
		t.StreamHours = described.StreamDetails.ExpirationTime
	}
	return t, err
}

// options are those of a table, as they are changed.
func options(t *instances.Table) instances.TableChange {
	change := instances.TableChange{TimeToLive: &t.TimeToLive, MaxVersions: &t.MaxVersions, MaxVersionOffset: &t.MaxVersionOffset}
	if t.StreamHours != 0 {
		change.StreamHours = &t.StreamHours
	}
	return change
}

func sdkOptions(t *instances.Table) *tablestore.TableOption {
	return &tablestore.TableOption{TimeToAlive: int(t.TimeToLive), MaxVersion: int(t.MaxVersions), DeviationCellVersionInSec: t.MaxVersionOffset}
}

// make makes the table, without a stream.
func (a *ofFiles) make(ctx context.Context, t *instances.Table) error {
	if a.Endpoint == "" {
		return a.held.CreateTable(ctx, a.Instance, &instances.NewTable{Name: t.Name, Key: t.Key, TableChange: options(t)})
	}
	client, err := a.client(1)
	if err != nil {
		return err
	}
	meta := &tablestore.TableMeta{TableName: t.Name}
	for _, k := range t.Key {
		of := map[string]tablestore.PrimaryKeyType{
			"integer": tablestore.PrimaryKeyType_INTEGER, "string": tablestore.PrimaryKeyType_STRING, "binary": tablestore.PrimaryKeyType_BINARY,
		}[k.Type]
		if k.AutoIncrement {
			meta.AddPrimaryKeyColumnOption(k.Name, of, tablestore.AUTO_INCREMENT)
		} else {
			meta.AddPrimaryKeyColumn(k.Name, of)
		}
	}
	_, err = client.CreateTable(&tablestore.CreateTableRequest{TableMeta: meta, TableOption: sdkOptions(t), ReservedThroughput: &tablestore.ReservedThroughput{}})
	return err
}

// alter gives the table options. A stream that it has and t has not stays.
func (a *ofFiles) alter(ctx context.Context, t *instances.Table) error {
	if a.Endpoint == "" {
		change := options(t)
		return a.held.AlterTable(ctx, a.Instance, a.Table, &change)
	}
	client, err := a.client(1)
	if err != nil {
		return err
	}
	_, err = client.UpdateTable(&tablestore.UpdateTableRequest{TableName: a.Table, TableOption: sdkOptions(t)})
	if err == nil && t.StreamHours != 0 {
		stream := &tablestore.StreamSpecification{EnableStream: true, ExpirationTime: t.StreamHours}
		_, err = client.UpdateTable(&tablestore.UpdateTableRequest{TableName: a.Table, StreamSpec: stream})
	}
	return err
}
