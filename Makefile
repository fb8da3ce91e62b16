# Short words for the commands of CONTRIBUTING.md. What must hold before a change lands is
# decided by .ci/run alone, which needs no make.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

.PHONY: build test race fuzz bench ci release

build:
	go build ./...

test:
	go test ./...

race:
	go test -race -short ./...

fuzz:
	.ci/fuzz

bench:
	go test -run '^$$' -bench . -skip 'Backup|KeptLog' -benchmem -timeout 1h ./bench

ci:
	.ci/run

release:
	go run -C tools ./release -out ../dist
