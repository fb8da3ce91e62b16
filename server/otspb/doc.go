// Package otspb holds the protobuf messages of the OTS protocol (API version
// 2015-12-31), generated from ots.proto. The wire format is proto2: required
// fields are enforced by Unmarshal and Marshal, unknown fields are skipped,
// and enumerations keep whatever number arrived, so their ranges are checked
// by package server.
//
// Fields whose comment says PlainBuffer hold rows in the encoding of package
// plainbuffer.
package otspb

// The path is given from the root of the repository because it becomes the
// name under which the file is registered in a process, which must not clash
// with that of a client library linked into the same program.
//go:generate protoc -I ../.. --go_out=../.. --go_opt=paths=source_relative server/otspb/ots.proto
