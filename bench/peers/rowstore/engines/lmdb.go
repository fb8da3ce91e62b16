//go:build lmdb

package engines

import "github.com/flagstone-db/flagstone/bench/peers/rowstore/lmdb"

func init() { tagged = append(tagged, lmdb.Engine) }
