package sstable

// Benchmarks of work that reads no value: whole files, and absent rows.

import "testing"

func BenchmarkVerify(b *testing.B) {
	for _, compression := range compressions {
		b.Run(compression.String(), func(b *testing.B) {
			_, r := benchReader(b, 5_000, compression, 0)
			b.SetBytes(r.footer.fileSize)
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Verify(nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGetOfAnAbsentRow asks for keys between those of the file. The filter answers
// nearly all of them.
func BenchmarkGetOfAnAbsentRow(b *testing.B) {
	t, r := benchReader(b, 50_000, CompressS2, 1<<30)
	for i := range t {
		t[i].key = append(t[i].key, 'x')
	}
	var it Iterator
	passed, i := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		key := t[i*7919%len(t)].key
		i++
		if !r.MayContain(Hash(key)) {
			continue
		}
		passed++
		it.Init(r, IterOptions{})
		if it.SeekRowExact(key) || it.Error() != nil {
			b.Fatal("found", it.Error())
		}
		it.Close()
	}
	b.ReportMetric(100*float64(passed)/float64(i), "%passed")
}
