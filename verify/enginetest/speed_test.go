//go:build engine

package enginetest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
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
// our runtime in turns, so that what else happens on the machine meets both alike. It reports the least time of each, in ms, and how
// many times as long the engine takes.
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
				tower, err := runtime.NewTower(p, cpu.Backend{}, runtime.Options{Mode: mode, DynamicOption: p.Config.DynamicOption, Threads: threads})
				if err != nil {
					b.Fatal(err)
				}
				var theirs, ours []float64
				for b.Loop() {
					a, err := e.do(job{Package: pkg, Time: 1 + timesEach, Images: []imageData{{size.Height, size.Width, im.Pix}}})
					if err != nil {
						b.Fatal(err)
					}
					theirs = append(theirs, a.Seconds[1:]...)
					for i := range 1 + timesEach {
						begin := time.Now()
						if _, err := tower.Look(b.Context(), im, size); err != nil {
							b.Fatal(err)
						}
						if i > 0 {
							ours = append(ours, time.Since(begin).Seconds())
						}
					}
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(slices.Min(theirs)*1000, "engine-ms")
				b.ReportMetric(slices.Min(ours)*1000, "ours-ms")
				b.ReportMetric(slices.Min(theirs)/slices.Min(ours), "ratio")
			})
		}
	}
}
