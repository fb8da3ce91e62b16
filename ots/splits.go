package ots

// This file cuts tables into splits of about equal size, for programs that read a table in
// parallel: ComputeSplitPointsBySize (PROTOCOL section 10). It also checks the partitions that
// CreateTable asks for.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/flagstone-db/flagstone/row"
)

const (
	// defaultSplitUnit is the unit of split sizes if a request names none.
	defaultSplitUnit = 100 * megabyte
	// minSplitUnit is the smallest unit that a request may name.
	minSplitUnit = 1 * megabyte
)

// ComputeSplitPointsBySize returns keys that cut a table into splits of about the requested
// size.
func (e *Engine) ComputeSplitPointsBySize(ctx context.Context, instance string, req *SplitPointsRequest) (*SplitPointsResponse, error) {
	if err := e.limits.checkTableName(req.Table); err != nil {
		return nil, err
	}
	size, limit, bad := splitSize(req)
	if bad != nil {
		return nil, bad
	}
	t, bad := e.table(instance, req.Table)
	if bad != nil {
		return nil, bad
	}
	if bad := e.admitTable(t, reads); bad != nil {
		return nil, bad
	}
	if err := turnOf(ctx).Take(ctx); err != nil {
		return nil, err
	}
	points, err := t.engine.SplitPoints(ctx, size, limit)
	if err != nil {
		return nil, e.asError(err, "compute split points", t.name, false)
	}
	resp := &SplitPointsResponse{PrimaryKey: keySchema(t.key)}
	for _, p := range points {
		resp.Points = append(resp.Points, nameKey(t.key, p))
	}
	splits := len(points) + 1
	resp.Locations = locations(t, points)
	resp.Consumed = CapacityUnit{Read: int32(min(splits, math.MaxInt32))}
	e.charge(t, resp.Consumed)
	return resp, nil
}

// checkPartitions checks the partitions that a new table is to have from the beginning. keyType is
// the type of the first key column.
func (l *Limits) checkPartitions(partitions []PartitionRange, keyType row.Type) *Error {
	if len(partitions) == 0 {
		return nil
	}
	if len(partitions) > l.Partitions {
		return invalid("The count of partitions cannot be greater than %d", l.Partitions)
	}
	begin := row.Min()
	var encoded []byte // begin, to compare keys with
	for _, p := range partitions[:len(partitions)-1] {
		if err := l.checkPartitionBound(p.End, keyType); err != nil {
			return err
		}
		end, err := row.AppendKey(nil, 1, p.End)
		if err != nil || !p.Begin.Equal(begin) || bytes.Compare(encoded, end) >= 0 {
			return partitionGap()
		}
		begin, encoded = p.End, end
	}
	if last := partitions[len(partitions)-1]; !last.Begin.Equal(begin) || last.End.Type() != row.TypeMax {
		return partitionGap()
	}
	return nil
}

func partitionGap() *Error {
	return invalid("The partition ranges must follow each other from INF_MIN to INF_MAX.")
}

// checkPartitionBound checks a value between two partitions of a new table.
func (l *Limits) checkPartitionBound(v row.Value, keyType row.Type) *Error {
	switch n := len(v.Bytes()); {
	case v.Type() != keyType:
		return invalid("The value type of partition does not match with primary key.")
	case keyType == row.TypeInteger:
		if i := v.Int64(); i == math.MinInt64 || i == math.MaxInt64 {
			return invalid("The value of partition range can not be INT64_MIN or INT64_MAX.")
		}
	case n == 0 && keyType == row.TypeString:
		return invalid("The value of partition range can not be empty string.")
	case n == 0:
		return invalid("The value of partition range can not be empty binary.")
	case n > l.PartitionBoundBytes:
		return invalid("The value of partition range exceeds the MaxLength:%d with CurrentLength:%d.", l.PartitionBoundBytes, n)
	}
	return nil
}

// splitSize returns the size of splits in bytes and the largest number of points; 0 is no
// limit.
func splitSize(req *SplitPointsRequest) (size int64, limit int, bad *Error) {
	unit := int64(defaultSplitUnit)
	if req.UnitBytes != nil {
		unit = *req.UnitBytes
	}
	switch {
	case req.SplitSize <= 0:
		return 0, 0, invalid("The split_size should be greater than 0.")
	case unit < minSplitUnit:
		return 0, 0, invalid("The split_size_unit_in_byte should be greater equal than: %d", minSplitUnit)
	case req.PointLimit != nil && *req.PointLimit <= 0:
		return 0, 0, invalid("The split_point_limit should be greater than 0.")
	}
	if req.PointLimit != nil {
		limit = int(*req.PointLimit)
	}
	if req.SplitSize > math.MaxInt64/unit {
		return math.MaxInt64, limit, nil
	}
	return req.SplitSize * unit, limit, nil
}

// locations names the partition in which each split begins: one location for all splits that follow each
// other and begin in the same one. Clients use it to send work on neighbouring splits to one place.
func locations(t *table, points [][]row.Value) (list []SplitLocation) {
	partitions := t.engine.Partitions()
	for i := range len(points) + 1 {
		for i > 0 && len(partitions) > 1 && !below(points[i-1][0], partitions[1].Start) {
			partitions = partitions[1:]
		}
		where := location(t, partitions[0].ID)
		if n := len(list); n == 0 || list[n-1].Location != where {
			list = append(list, SplitLocation{Location: where})
		}
		list[len(list)-1].Repeat++
	}
	return list
}

// below compares two values of a table's first key column.
func below(a, b row.Value) bool {
	if a.Type() == row.TypeInteger {
		return a.Int64() < b.Int64()
	}
	return bytes.Compare(a.Bytes(), b.Bytes()) < 0
}

// location is the name of a partition, which is the same as long as the partition exists.
func location(t *table, partition uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", t.engine.Name(), partition))
	return hex.EncodeToString(sum[:16])
}
