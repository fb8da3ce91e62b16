package sstable

import (
	"reflect"
	"testing"
	"unsafe"
)

// A parsed block in the cache lies off the Go heap, where the garbage collector does not
// look. So it may only point into its own data.
func TestAParsedBlockPointsNowhereButIntoItsData(t *testing.T) {
	f := &memFile{}
	sortedBenchTable(50).write(t, f, WriterOptions{})
	r := openFile(t, f, nil)
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	for ok := it.First(); ok; ok = it.NextRow() {
		b := reflect.ValueOf(it.blocks.block).Elem()
		pointsInto(t, "dataBlock", b, it.blocks.block.data)
	}
	if it.Error() != nil {
		t.Fatal(it.Error())
	}
}

func pointsInto(t *testing.T, path string, v reflect.Value, data []byte) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			pointsInto(t, path+"."+v.Type().Field(i).Name, v.Field(i), data)
		}
	case reflect.Array:
		for i := range v.Len() {
			pointsInto(t, path, v.Index(i), data)
		}
	case reflect.Slice:
		if v.Cap() == 0 {
			return
		}
		at := v.Pointer() - uintptr(unsafe.Pointer(unsafe.SliceData(data)))
		if at > uintptr(len(data)) || at+uintptr(v.Cap())*v.Type().Elem().Size() > uintptr(cap(data)) {
			t.Fatalf("%s is not in the block's data", path)
		}
	case reflect.Pointer, reflect.Map, reflect.Chan, reflect.Func, reflect.Interface, reflect.String, reflect.UnsafePointer:
		if !v.IsZero() {
			t.Fatalf("%s, a %v, is not in the block's data", path, v.Kind())
		}
	}
}
