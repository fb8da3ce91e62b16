package server

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/otspb"
)

// This file holds the operations on tables (PROTOCOL 2.3).

func createTable(ctx context.Context, on target, m *otspb.CreateTableRequest) (proto.Message, error) {
	meta := m.TableMeta
	if err := checkTexts(*meta.TableName); err != nil {
		return nil, err
	}
	req := &ots.CreateTableRequest{
		Table:              *meta.TableName,
		ReservedThroughput: reservedThroughput(m.ReservedThroughput),
		EnableLocalTxn:     m.EnableLocalTxn,
		HasIndexes:         len(m.IndexMetas) > 0 || len(meta.IndexMeta) > 0,
		HasSSE:             m.SseSpec.GetEnable(),
	}
	var err error
	if req.PrimaryKey, err = keyColumns(meta.PrimaryKey); err != nil {
		return nil, err
	}
	if req.DefinedColumns, err = definedColumns(meta.DefinedColumn); err != nil {
		return nil, err
	}
	if req.Options, err = tableOptions(m.TableOptions); err != nil {
		return nil, err
	}
	if req.Stream, err = streamSpecification(m.StreamSpec); err != nil {
		return nil, err
	}
	if req.Partitions, err = partitionRanges(m.Partitions); err != nil {
		return nil, err
	}
	if err := on.service.CreateTable(ctx, on.instance, req); err != nil {
		return nil, err
	}
	return &otspb.CreateTableResponse{}, nil
}

func listTable(ctx context.Context, on target, _ *otspb.ListTableRequest) (proto.Message, error) {
	names, err := on.service.ListTable(ctx, on.instance)
	if err != nil {
		return nil, err
	}
	return &otspb.ListTableResponse{TableNames: names}, nil
}

func deleteTable(ctx context.Context, on target, m *otspb.DeleteTableRequest) (proto.Message, error) {
	if err := checkTexts(*m.TableName); err != nil {
		return nil, err
	}
	if err := on.service.DeleteTable(ctx, on.instance, *m.TableName); err != nil {
		return nil, err
	}
	return &otspb.DeleteTableResponse{}, nil
}

func describeTable(ctx context.Context, on target, m *otspb.DescribeTableRequest) (proto.Message, error) {
	if err := checkTexts(*m.TableName); err != nil {
		return nil, err
	}
	d, err := on.service.DescribeTable(ctx, on.instance, *m.TableName)
	if err != nil {
		return nil, err
	}
	answer := &otspb.DescribeTableResponse{
		TableMeta: &otspb.TableMeta{
			TableName:     &d.Table,
			PrimaryKey:    keySchema(d.PrimaryKey),
			DefinedColumn: definedSchema(d.DefinedColumns),
		},
		ReservedThroughputDetails: throughputDetails(d),
		TableOptions:              describedOptions(d),
		TableStatus:               otspb.TableStatus_ACTIVE.Enum(),
		StreamDetails:             streamDetails(d.Stream),
		CreationTime:              &d.CreationTimeMicros,
	}
	for _, split := range d.Splits {
		answer.ShardSplits = append(answer.ShardSplits, encodeKey(split))
	}
	return answer, nil
}

func updateTable(ctx context.Context, on target, m *otspb.UpdateTableRequest) (proto.Message, error) {
	if err := checkTexts(*m.TableName); err != nil {
		return nil, err
	}
	req := &ots.UpdateTableRequest{Table: *m.TableName}
	var err error
	if req.Options, err = tableOptions(m.TableOptions); err != nil {
		return nil, err
	}
	if m.ReservedThroughput != nil {
		t := reservedThroughput(m.ReservedThroughput)
		req.ReservedThroughput = &t
	}
	if req.Stream, err = streamSpecification(m.StreamSpec); err != nil {
		return nil, err
	}
	d, err := on.service.UpdateTable(ctx, on.instance, req)
	if err != nil {
		return nil, err
	}
	return &otspb.UpdateTableResponse{
		ReservedThroughputDetails: throughputDetails(d),
		TableOptions:              describedOptions(d),
		StreamDetails:             streamDetails(d.Stream), // clients read it even if they did not ask for it
	}, nil
}

func computeSplitPoints(ctx context.Context, on target, m *otspb.ComputeSplitPointsBySizeRequest) (proto.Message, error) {
	if err := checkTexts(*m.TableName); err != nil {
		return nil, err
	}
	res, err := on.service.ComputeSplitPointsBySize(ctx, on.instance, &ots.SplitPointsRequest{
		Table:      *m.TableName,
		SplitSize:  *m.SplitSize,
		UnitBytes:  m.SplitSizeUnitInByte,
		PointLimit: m.SplitPointLimit,
	})
	if err != nil {
		return nil, err
	}
	answer := &otspb.ComputeSplitPointsBySizeResponse{
		Consumed: consumed(res.Consumed),
		Schema:   keySchema(res.PrimaryKey),
	}
	for _, point := range res.Points {
		answer.SplitPoints = append(answer.SplitPoints, encodeKey(point))
	}
	for i := range res.Locations {
		l := &res.Locations[i]
		answer.Locations = append(answer.Locations, &otspb.ComputeSplitPointsBySizeResponse_SplitLocation{
			Location: &l.Location, Repeat: &l.Repeat,
		})
	}
	return answer, nil
}

func tableOptions(m *otspb.TableOptions) (*ots.TableOptions, error) {
	if m == nil {
		return nil, nil
	}
	o := &ots.TableOptions{
		TimeToLive:       m.TimeToLive,
		MaxVersions:      m.MaxVersions,
		MaxVersionOffset: m.DeviationCellVersionInSec,
		AllowUpdate:      m.AllowUpdate,
		UpdateFullRow:    m.UpdateFullRow,
		BlockSize:        m.BlockSize,
	}
	if m.BloomFilterType != nil {
		if err := checkEnum(otspb.BloomFilterType_name, *m.BloomFilterType); err != nil {
			return nil, err
		}
		kind := int32(*m.BloomFilterType)
		o.BloomFilterType = &kind
	}
	return o, nil
}

func streamSpecification(m *otspb.StreamSpecification) (*ots.StreamSpecification, error) {
	if m == nil {
		return nil, nil
	}
	return &ots.StreamSpecification{
		Enable:          *m.EnableStream,
		ExpirationHours: m.ExpirationTime,
		ColumnsToGet:    m.ColumnsToGet,
	}, checkTexts(m.ColumnsToGet...)
}

// describedOptions sets every field that clients read without checking for presence.
func describedOptions(d *ots.TableDescription) *otspb.TableOptions {
	o := &otspb.TableOptions{
		TimeToLive:                &d.TimeToLive,
		MaxVersions:               &d.MaxVersions,
		DeviationCellVersionInSec: &d.MaxVersionOffset,
		AllowUpdate:               &d.AllowUpdate,
		UpdateFullRow:             &d.UpdateFullRow,
		BlockSize:                 d.BlockSize,
	}
	if d.BloomFilterType != nil {
		o.BloomFilterType = otspb.BloomFilterType(*d.BloomFilterType).Enum()
	}
	return o
}

func throughputDetails(d *ots.TableDescription) *otspb.ReservedThroughputDetails {
	details := &otspb.ReservedThroughputDetails{
		CapacityUnit:     capacity(d.ReservedRead, d.ReservedWrite),
		LastIncreaseTime: &d.LastIncreaseTime,
	}
	if d.LastDecreaseTime != 0 {
		details.LastDecreaseTime = &d.LastDecreaseTime
	}
	return details
}
