# Short words for commands of .ci/run and CONTRIBUTING.md. What must hold before a change lands is
# decided by .ci/run alone, which needs no make: a command that changes there changes here.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

.PHONY: build test race fuzz bench ci

build:
	go build ./...

test:
	go test ./...

race:
	FLAGSTONE_HISTORIES=300 go test -race -short -timeout 20m . ./internal/... ./memtable ./wal ./sstable ./valuefile ./mvcc ./manifest ./compaction ./partition ./server/... ./ots ./instances/...

fuzz:
	go test ./... -list '^Fuzz' | awk '/^Fuzz/ {t[n++]=$$1} /^ok/ {for (i=0; i<n; i++) print $$2, t[i]; n=0}' | while read -r pkg target; do go test "$$pkg" -run '^$$' -fuzz "^$$target\$$" -fuzztime 3s -fuzzminimizetime 10x; done

bench:
	go test -bench . -benchmem ./bench/...

ci:
	.ci/run
