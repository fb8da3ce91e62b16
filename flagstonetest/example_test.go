package flagstonetest_test

import (
	"fmt"
	"log"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"github.com/flagstone-db/flagstone/flagstonetest"
)

// The SDK is given the address and the access key of the server. A test calls New, which ends the server with the test.
func ExampleStart() {
	srv, err := flagstonetest.Start(flagstonetest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	client := tablestore.NewClient(srv.Endpoint, srv.Instance, srv.AccessKeyID, srv.AccessKeySecret)
	tables, err := client.ListTable()
	fmt.Println(len(tables.TableNames), err)
	// Output: 0 <nil>
}
