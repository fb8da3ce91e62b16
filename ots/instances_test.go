package ots

import (
	"context"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

func TestInstancesComeAndGoWhileOthersAreServed(t *testing.T) {
	f := openFixture(t, Limits{})
	ctx := context.Background()
	if err := f.AddInstance("third"); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"third", "9", "ab"} {
		if err := f.AddInstance(bad); err == nil {
			t.Errorf("instance %q was added", bad)
		}
	}
	for _, in := range []string{"other", "third"} {
		if err := f.CreateTable(ctx, in, tableRequest("t", "pk", row.TypeInteger)); err != nil {
			t.Fatal(err)
		}
	}
	if n, _, err := f.Usage(ctx, "third"); n != 1 || err != nil {
		t.Errorf("%d tables, %v", n, err)
	}
	if err := f.RemoveInstance(ctx, "third"); err != nil {
		t.Fatal(err)
	}
	err := f.CreateTable(ctx, "third", tableRequest("t", "pk", row.TypeInteger))
	wantError(t, err, CodeAuthFailed, "The instance is not found.")
	if err := f.AddInstance("third"); err != nil {
		t.Fatal(err)
	}
	if names, err := f.ListTable(ctx, "third"); err != nil || len(names) != 0 {
		t.Errorf("made again it has tables %v, %v", names, err)
	}
	if names, err := f.ListTable(ctx, "other"); err != nil || len(names) != 1 {
		t.Errorf("the other instance has tables %v, %v", names, err)
	}
}

func TestCapacityInstancesReserveNothing(t *testing.T) {
	e := &Engine{instanceType: Capacity}
	zero, one := int32(0), int32(1)
	for _, given := range []ReservedThroughput{{}, {Read: &zero}, {Write: &zero}, {Read: &zero, Write: &zero}} {
		if err := e.forbidReserved(&given, true); err != nil {
			t.Errorf("%+v: %v", given, err)
		}
	}
	wantError(t, e.forbidReserved(&ReservedThroughput{Read: &one}, false), CodeParameterInvalid, "The value of read capacity unit can not be greater than 0.")
	wantError(t, e.forbidReserved(&ReservedThroughput{Write: &one}, false), CodeParameterInvalid, "The value of write capacity unit can not be greater than 0.")
	wantError(t, e.forbidReserved(&ReservedThroughput{Read: &zero, Write: &one}, true), CodeForbiddenUpdateCapacityUnit,
		"Reserved throughput cannot be changed on an instance of type capacity.")
	if err := (&Engine{instanceType: HighPerformance}).forbidReserved(&ReservedThroughput{Read: &one}, true); err != nil {
		t.Errorf("high-performance: %v", err)
	}
}
