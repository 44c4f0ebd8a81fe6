package stage_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/picture"
)

// drawnPictures writes pictures of waves, edges and blots to a folder. They have to do for random weights; no photograph is like them.
func drawnPictures(t testing.TB, dir string, count int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i/10))+string(rune('0'+i%10))+".png"), drawnPicture(t, i), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func drawnPicture(t testing.TB, seed int) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(seed), 5))
	w, h := 64+r.IntN(96), 64+r.IntN(96)
	im := image.NewRGBA(image.Rect(0, 0, w, h))
	var f [3][4]float64
	for c := range f {
		f[c] = [4]float64{r.Float64() / 4, r.Float64() / 4, 6 * r.Float64(), 40 + 80*r.Float64()}
	}
	edge, level := r.IntN(w), 120*r.Float64()-60
	for y := range h {
		for x := range w {
			var v [3]uint8
			for c, k := range f {
				s := 128 + k[3]*math.Sin(k[0]*float64(x)+k[1]*float64(y)+k[2]) + 12*r.NormFloat64()
				if x > edge {
					s += level
				}
				v[c] = uint8(max(0, min(255, s)))
			}
			im.Set(x, y, color.RGBA{v[0], v[1], v[2], 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, im); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// drawnClips writes clips of tones and noise to a folder.
func drawnClips(t testing.TB, dir string, count int) {
	t.Helper()
	for i := range count {
		r := rand.New(rand.NewPCG(uint64(i), 6))
		n := 3200 + r.IntN(16000)
		b := append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data"), 0, 0, 0, 0)
		binary.LittleEndian.PutUint32(b[4:], uint32(36+2*n))
		binary.LittleEndian.PutUint32(b[40:], uint32(2*n))
		tone := 0.02 + r.Float64()/2
		for k := range n {
			b = binary.LittleEndian.AppendUint16(b, uint16(int16(6000*math.Sin(tone*float64(k))+900*r.NormFloat64())))
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.wav", i)), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// A package that was calibrated with pictures, or with clips, is verified; its report tells what it was shown and how far it is from the
// source on what was set aside.
func TestShownPackages(t *testing.T) {
	t.Parallel()
	pictures, clips := t.TempDir(), t.TempDir()
	drawnPictures(t, pictures, 16)
	drawnClips(t, clips, 16)
	parquetFile := filepath.Join(t.TempDir(), "set.parquet")
	writeParquet(t, pictures, parquetFile)
	for _, tt := range []struct{ name, family, kind, part, key, path string }{
		{"folder", "llava", "pictures", "visual", "pictures", pictures},
		{"parquet", "llava", "pictures", "visual", "pictures", parquetFile},
		{"clips", "qwen2_audio", "clips", "audio", "sounds", clips},
		{"convolutions", "llava_qwen2-square", "pictures", "visual", "pictures", pictures},
	} {
		if testing.Short() && tt.name != "folder" && tt.name != "clips" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+tt.family, watch+untrained+"\nquantize: {block: auto, method: gptq}")
			w.must(t, "calibrate."+tt.key+"="+filepath.ToSlash(tt.path))
			m, err := manifest.Open(w.out())
			if err != nil || !m.Verified {
				t.Fatalf("verified %v: %v", m != nil && m.Verified, err)
			}
			for _, c := range m.Conditions {
				if strings.Contains(c, "nearest") {
					t.Error(c)
				}
			}
			b, err := os.ReadFile(filepath.Join(w.out(), about.ReportName))
			if err != nil {
				t.Fatal(err)
			}
			var report about.Report
			if err := json.Unmarshal(b, &report); err != nil {
				t.Fatal(err)
			}
			shown := report.Calibration.Shown
			if len(shown) != 1 || shown[0].Kind != tt.kind || shown[0].Files != 16 || shown[0].Used != 14 || shown[0].Probe != 2 || len(shown[0].SHA256) != 64 ||
				!(shown[0].ProbeKL > 0) || !(shown[0].ProbeRows > 0 && shown[0].ProbeRows < 1e-3) {
				t.Errorf("%+v", shown)
			}
			watched := map[string]bool{}
			for _, o := range report.Calibration.Ops {
				watched[o.Tensor] = true
			}
			for _, x := range m.Tensors {
				if name, _, _ := strings.Cut(x.Name, "+"); x.Part == tt.part && strings.HasPrefix(x.Spec, "w") && !watched[name] {
					t.Errorf("%s was not calibrated", name)
				}
			}
		})
	}
}

// writeParquet writes the pictures of a folder as data sets have them.
func writeParquet(t testing.TB, dir, path string) {
	t.Helper()
	type file struct {
		Bytes []byte `parquet:"bytes,optional,snappy"`
		Path  string `parquet:"path,optional"`
	}
	type row struct {
		Label int64 `parquet:"label"`
		Image file  `parquet:"image,optional"`
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for i, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row{int64(i), file{b, e.Name()}})
	}
	if err := parquet.WriteFile(path, rows, parquet.MaxRowsPerRowGroup(6)); err != nil {
		t.Fatal(err)
	}
}

// What cannot be shown is refused at its key.
func TestShownRefused(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	broken := t.TempDir()
	drawnPictures(t, broken, 3)
	if err := os.WriteFile(filepath.Join(broken, "b.png"), []byte("no picture"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ family, key, path, want string }{
		{"llava", "pictures", empty, "no pictures in the folder"},
		{"llava", "pictures", filepath.Join(empty, "none"), "there is no such folder or file"},
		{"llava", "pictures", broken, "b.png"},
		{"llava", "sounds", broken, "no clips in the folder"},
		{"qwen3-tied", "pictures", broken, "the model has no tower that reads pictures"},
	} {
		w := newWork(t, families+tt.family, watch+unverified+"\nquantize: {block: auto, method: gptq}")
		_, err := w.run(t, "calibrate."+tt.key+"="+filepath.ToSlash(tt.path))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "calibrate."+tt.key) {
			t.Errorf("%s, %s: %v, want %s", tt.family, tt.key, err, tt.want)
		}
	}
}

// towerRows are what the tower of a package makes of pictures.
func towerRows(t *testing.T, dir string, seeds ...int) (rows []float32) {
	t.Helper()
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tower, err := runtime.NewTower(p, cpu.Backend{}, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range seeds {
		im, err := picture.Decode(bytes.NewReader(drawnPicture(t, seed)))
		if err != nil {
			t.Fatal(err)
		}
		size, err := tower.Fit(im.Size(), 1<<14)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := tower.Look(t.Context(), im, size)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, seen.Pictures[0].Rows...)
	}
	return rows
}

// relative is the squared error of b over the squares of a.
func relative(a, b []float32) float64 {
	var wrong, all float64
	for i, v := range a {
		d := float64(v) - float64(b[i])
		wrong, all = wrong+d*d, all+float64(v)*float64(v)
	}
	return wrong / all
}

// At 4 bits a tower that was calibrated with pictures makes rows of other pictures that are closer to the source's than those of a rounded
// one.
func TestShownTowers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	drawnPictures(t, dir, 24)
	list := []string{"llava"}
	if !testing.Short() {
		list = []string{"llava", "gemma3", "qwen2_5_vl", "smolvlm", "qwen3_vl", "internvl", "lfm2_vl"}
	}
	for _, family := range list {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			rows := func(bits int, method string, overrides ...string) []float32 {
				w := newWork(t, families+family, fmt.Sprintf("%sverify: {enabled: false}\nquantize:\n  bits: %d\n  block: auto\n  method: %s\n  overrides:\n"+
					"    - {match: 'vis|multi_modal|mlp1|connector|projector', bits: %d}", watch, bits, method, bits))
				w.must(t, overrides...)
				return towerRows(t, w.out(), 100, 101, 102, 103, 104, 105)
			}
			shown := "calibrate.pictures=" + filepath.ToSlash(dir)
			float := rows(16, "rtn")
			nearest, gptq := relative(float, rows(4, "rtn")), relative(float, rows(4, "gptq", shown))
			search := relative(float, rows(4, "[awq, {search: {importance: hessian}}]", shown))
			t.Logf("squared error of rows: rtn %.4g, gptq %.4g, awq and search %.4g", nearest, gptq, search)
			if !(gptq < nearest) || !(search < nearest) {
				t.Errorf("squared error of rows: rtn %g, gptq %g, awq and search %g", nearest, gptq, search)
			}
		})
	}
}

// So does a tower of an overview and slices, which a small picture becomes, too.
func TestShownSlices(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	drawnPictures(t, dir, 3)
	rows := func(tower string, overrides ...string) []float32 {
		w := newWork(t, families+"minicpmv", watch+"verify: {enabled: false}\nquantize: {bits: 4, block: auto, "+tower+"}")
		w.must(t, overrides...)
		return towerRows(t, w.out(), 100)
	}
	float := rows("method: rtn, overrides: [{match: 'vpm|resampler', bits: 16}]")
	small := "overrides: [{match: 'vpm|resampler', bits: 4}]"
	nearest, gptq := relative(float, rows("method: rtn, "+small)), relative(float, rows("method: gptq, "+small, "calibrate.pictures="+filepath.ToSlash(dir)))
	t.Logf("squared error of rows: rtn %.4g, gptq %.4g", nearest, gptq)
	if !(gptq < nearest/2) {
		t.Errorf("squared error of rows: rtn %g, gptq %g", nearest, gptq)
	}
}

// A budget chooses for the tower and the text model together where pictures are named, and for the text model alone where not. The former is
// closer to the source on pictures of another kind.
func TestShownBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	pictures, clips := t.TempDir(), t.TempDir()
	drawnPictures(t, pictures, 16)
	drawnClips(t, clips, 16)
	for _, tt := range []struct{ family, part, bpw, shown string }{
		{"llava", "visual", "6", "calibrate.pictures=" + filepath.ToSlash(pictures)},
		{"qwen3_vl", "visual", "7.5", "calibrate.pictures=" + filepath.ToSlash(pictures)},
		{"qwen2_audio", "audio", "7.5", "calibrate.sounds=" + filepath.ToSlash(clips)},
	} {
		t.Run(tt.family, func(t *testing.T) {
			t.Parallel()
			specs := func(overrides ...string) (tower, text map[string]int, kl float64) {
				w := newWork(t, families+tt.family, watch+untrained+"\nquantize: {method: gptq, budget: {bpw: "+tt.bpw+"}}")
				w.must(t, overrides...)
				m, err := manifest.Open(w.out())
				if err != nil || !m.Verified {
					t.Fatalf("verified %v: %v", m != nil && m.Verified, err)
				}
				tower, text = map[string]int{}, map[string]int{}
				for _, x := range m.Tensors {
					_, err := quant.ParseSpec(x.Spec)
					switch {
					case err != nil:
					case x.Part == tt.part:
						tower[x.Spec]++
					default:
						text[x.Spec]++
					}
				}
				for _, c := range m.Checks {
					if c.Name == "pictures" || c.Name == "sounds" {
						kl = c.Value["kl"]
					}
				}
				return tower, text, kl
			}
			tower, text, kl := specs(tt.shown)
			alone, textAlone, klAlone := specs()
			t.Logf("together: tower %v, text %v, KL %.3g; text alone: tower %v, text %v, KL %.3g", tower, text, kl, alone, textAlone, klAlone)
			for spec := range alone {
				if !strings.HasPrefix(spec, "w8") && spec != "f16" {
					t.Errorf("a budget without pictures stores a matrix of the tower as %s", spec)
				}
			}
			if !(kl < klAlone) {
				t.Errorf("KL on other pictures or clips is %g, with a budget for the text model alone %g", kl, klAlone)
			}
			if len(tower) < 2 || maps.Equal(tower, alone) {
				t.Errorf("a budget with pictures stores the tower as %v", tower)
			}
		})
	}
}
