// Package tunnelpb holds the protobuf messages of data tunnels (API version 2018-04-01),
// generated from tunnel.proto. As in package otspb, Unmarshal and Marshal enforce required fields
// and keep any enumeration number. A refusal is an otspb.Error.
package tunnelpb

//go:generate protoc -I ../.. --go_out=../.. --go_opt=paths=source_relative server/tunnelpb/tunnel.proto
