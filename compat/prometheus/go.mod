module github.com/flagstone-db/flagstone/compat/prometheus

go 1.26

require (
	github.com/aliyun/aliyun-tablestore-go-sdk v1.9.3
	github.com/flagstone-db/flagstone/compat/gosdk v0.0.0
)

require (
	github.com/golang/protobuf v1.3.2 // indirect
	github.com/google/flatbuffers v23.5.26+incompatible // indirect
	github.com/hashicorp/golang-lru v0.5.4 // indirect
)

replace github.com/flagstone-db/flagstone/compat/gosdk => ../gosdk
