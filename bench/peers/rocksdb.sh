#!/bin/sh
# Builds RocksDB as its authors release it: Debian's sources, assertions off, -O2, for
# the processor of this machine. Debian's own library is portable and has assertions.
#
# usage: ./rocksdb.sh DIRECTORY [MAKE FLAGS]
#
# It needs a compiler, make, dpkg-dev and libsnappy-dev, and half an hour of one processor
# (./rocksdb.sh DIRECTORY -j8 is faster). It needs no privilege and leaves apt's lists as
# they are. What is in DIRECTORY already is used again. Its output is what to set before
# "go run .", so: eval "$(./rocksdb.sh DIRECTORY)".
set -eu

if [ $# -lt 1 ]; then
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
mkdir -p "$1"
to=$(cd "$1" && pwd)
shift

# Without this header the Makefile leaves Snappy out, and every run of the comparison fails.
echo '#include <snappy.h>' | "${CXX:-c++}" -E -xc++ - >/dev/null || {
	echo "$0: there is no snappy.h: install libsnappy-dev" >&2
	exit 1
}

# Sources of Debian in lists of our own.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
apt="$to/apt"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
cat >"$apt/sources.list" <<END
deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main
END
fetch() {
	apt-get -q -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" \
		-o APT::Sandbox::User="$(id -un)" "$@" >&2
}
if ! ls -d "$to"/rocksdb-*/ >/dev/null 2>&1; then
	fetch update
	(cd "$to" && fetch source --only-source rocksdb)
fi
source=$(ls -d "$to"/rocksdb-*/)
source=${source%/}

# Snappy only, as in the comparison. The Makefile finds out what is installed and uses
# all of it otherwise.
export ROCKSDB_DISABLE_ZLIB=1 ROCKSDB_DISABLE_BZIP=1 ROCKSDB_DISABLE_LZ4=1 ROCKSDB_DISABLE_ZSTD=1 \
	ROCKSDB_DISABLE_GFLAGS=1 ROCKSDB_DISABLE_TBB=1 ROCKSDB_DISABLE_NUMA=1 \
	ROCKSDB_DISABLE_JEMALLOC=1 ROCKSDB_DISABLE_MEMKIND=1
make -C "$source" "$@" static_lib DEBUG_LEVEL=0 PORTABLE=0 DISABLE_WARNING_AS_ERROR=1 EXTRA_CXXFLAGS=-g0 SKIP_DEPENDS=1 >&2

cat <<END
export CGO_CFLAGS='-O2 -DPEERS_ROCKSDB_RELEASE -I$source/include'
export CGO_LDFLAGS='-L$source -lrocksdb -lstdc++ -lsnappy -lm -ldl -lpthread'
# and then: go run -tags rocksdb,grocksdb_clean_link . full
END
