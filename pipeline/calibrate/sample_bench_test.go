package calibrate

import (
	"flag"
	"testing"
)

// The flags of BenchmarkSample, for example
//
//	go test ./pipeline/calibrate -run - -bench Sample -benchtime 1x -cpu 1,2,4,8,16 -checkpoint DIR -windows 140 -length 512
var (
	benchCheckpoint = flag.String("checkpoint", tinyDir, "directory of the checkpoint for benchmarks")
	benchWindows    = flag.Int("windows", 32, "number of windows in benchmarks of generated text")
	benchLength     = flag.Int("length", 64, "tokens of a window in benchmarks of generated text")
)

// BenchmarkSample generates text on GOMAXPROCS threads.
func BenchmarkSample(b *testing.B) {
	d, src := openCheckpoint(b, *benchCheckpoint)
	s := Sampling{Windows: *benchWindows, Length: *benchLength, First: []int32{1}, Memory: 8 << 30}
	for b.Loop() {
		if _, err := Sample(b.Context(), d, src, s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N**benchWindows**benchLength)/b.Elapsed().Seconds(), "tok/s")
}
