package consumer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"github.com/flagstone-db/flagstone/consumer"
	"github.com/flagstone-db/flagstone/flagstonetest"
)

// A program keeps the position wherever it keeps what it made of the changes.
func ExampleRun() {
	srv, err := flagstonetest.Start(flagstonetest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	client := tablestore.NewClient(srv.Endpoint, srv.Instance, srv.AccessKeyID, srv.AccessKeySecret)
	meta := &tablestore.TableMeta{TableName: "orders"}
	meta.AddPrimaryKeyColumn("id", tablestore.PrimaryKeyType_STRING)
	if _, err := client.CreateTable(&tablestore.CreateTableRequest{
		TableMeta: meta, TableOption: tablestore.NewTableOption(-1, 1), ReservedThroughput: &tablestore.ReservedThroughput{},
		StreamSpec: &tablestore.StreamSpecification{EnableStream: true, ExpirationTime: 24},
	}); err != nil {
		log.Fatal(err)
	}
	put := &tablestore.PutRowChange{TableName: "orders", PrimaryKey: new(tablestore.PrimaryKey)}
	put.PrimaryKey.AddPrimaryKeyColumn("id", "a")
	put.AddColumn("state", "new")
	put.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
	if _, err := client.PutRow(&tablestore.PutRowRequest{PutRowChange: put}); err != nil {
		log.Fatal(err)
	}

	var position *consumer.Position // of an earlier run; nil begins at the oldest change
	err = consumer.Run(context.Background(), client, consumer.Options{
		Table: "orders",
		From:  position,
		Save: func(p *consumer.Position) error {
			fmt.Println("shards:", len(p.Shards))
			return nil
		},
		Handle: func(_ context.Context, _ string, records []*tablestore.StreamRecord) error {
			for _, r := range records {
				fmt.Println(r.Type, r.PrimaryKey.PrimaryKeys[0].Value, *r.Columns[0].Name, r.Columns[0].Value)
			}
			return nil
		},
	})
	fmt.Println(err)
	// Output:
	// "PutRow" a state new
	// shards: 1
	// <nil>
}
