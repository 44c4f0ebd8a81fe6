//go:build engine

package enginetest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/picture"
)

// timesEach is how often engine and runtime read the picture in a round, after once that does not count.
const timesEach = 2

// BenchmarkTowers reads a picture of 448 x 448 pixels with a tower of the size of SigLIP base, random weights in 8 bits, by the newest engine and by
// our runtime in turns, so that what else happens on the machine meets both alike. It reports the least time of each in ms by the clock,
// and of all cores, and how many times as long the engine takes. On a machine that others use, only the time of cores says something.
func BenchmarkTowers(b *testing.B) {
	all := engines(b)
	e := all[len(all)-1]
	checkpoint := filepath.Join(b.TempDir(), "checkpoint")
	if out, err := exec.Command("go", "run", "../../internal/synthetic", "-shape", "siglip-base", "-out", checkpoint).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	pkg, err := stagetest.Export(b.Context(), b.TempDir(), checkpoint, "quantize: {bits: 8}\nverify: {enabled: false}")
	if err != nil {
		b.Fatal(err)
	}
	p, err := runtime.Open(pkg)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	size := picture.Size{Height: p.Config.ImageSize, Width: p.Config.ImageSize}
	im := &picture.Image{Height: size.Height, Width: size.Width, Pix: make([]byte, 3*size.Height*size.Width)}
	for i := range im.Pix {
		im.Pix[i] = byte(i*i>>3 + i)
	}
	for _, memory := range []string{"high", "low"} {
		mode := backend.Float
		if memory == "low" {
			mode = backend.Int8
		}
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("memory=%s/threads=%d", memory, threads), func(b *testing.B) {
				preparedFor(b, pkg, "high", memory, threads)
				o := runtime.Options{Mode: mode, DynamicOption: p.Config.DynamicOption, Threads: threads, CacheBytes: 1 << 30} // as the engine keeps them
				tower, err := runtime.NewTower(p, cpu.Backend{}, o)
				if err != nil {
					b.Fatal(err)
				}
				var theirs, ours, theirWork, work []float64
				for b.Loop() {
					a, err := e.do(job{Package: pkg, Time: 1 + timesEach, Images: []imageData{{size.Height, size.Width, im.Pix}}})
					if err != nil {
						b.Fatal(err)
					}
					theirs, theirWork = append(theirs, a.Seconds[1:]...), append(theirWork, a.Cores[1:]...)
					for i := range 1 + timesEach {
						begin, worked := time.Now(), coreSeconds(b)
						if _, err := tower.Look(b.Context(), im, size); err != nil {
							b.Fatal(err)
						}
						if i > 0 {
							ours, work = append(ours, time.Since(begin).Seconds()), append(work, coreSeconds(b)-worked)
						}
					}
				}
				b.ReportMetric(0, "ns/op")
				for unit, least := range map[string][2]float64{"": {slices.Min(theirs), slices.Min(ours)}, "core-": {slices.Min(theirWork), slices.Min(work)}} {
					b.ReportMetric(least[0]*1000, "engine-"+unit+"ms")
					b.ReportMetric(least[1]*1000, "ours-"+unit+"ms")
					b.ReportMetric(least[0]/least[1], unit+"ratio")
				}
			})
		}
	}
}

// coreSeconds is the time that this process has had of all cores.
func coreSeconds(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
