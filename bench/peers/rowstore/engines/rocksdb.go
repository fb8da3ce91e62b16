//go:build rocksdb

package engines

import "github.com/flagstone-db/flagstone/bench/peers/rowstore/rocksdb"

func init() { tagged = append(tagged, rocksdb.Engine) }
