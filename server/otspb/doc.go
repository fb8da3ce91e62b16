// Package otspb holds the protobuf messages of the OTS protocol (API version 2015-12-31),
// generated from ots.proto. The wire format is proto2: Unmarshal and Marshal enforce required
// fields, skip unknown fields, and keep any enumeration number, so package server checks their
// ranges.
//
// Fields whose comment says PlainBuffer hold rows in the encoding of package
// plainbuffer.
package otspb

// The path starts at the root of the repository because it becomes the file's registered name
// in a process. That name must not clash with that of a client library in the same program.
//go:generate protoc -I ../.. --go_out=../.. --go_opt=paths=source_relative server/otspb/ots.proto
