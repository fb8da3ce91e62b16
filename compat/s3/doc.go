// Package s3 tests backups in a bucket with a server of S3 that others use: versitygw, with its files in a folder. The
// server is a process of its own, so that tests can kill it.
package s3
