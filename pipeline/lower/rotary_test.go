package lower

import (
	"math"
	"strconv"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// rotaryBound: each of the four table entries is off by at most 2^-25, the two products by 2^-25 each, the sum
// by 2^-25; with |cos|+|sin| at most sqrt(2) for each of the two factors that is below 6*2^-25 = 1.8e-7. The
// angle itself, a float64 up to 2^17, is off by less than 2^-35.
const rotaryBound = 2e-7

func decoderWithPositions(t testing.TB, name string, positions int) *arch.Decoder {
	return describe(t, name, map[string]any{"max_position_embeddings": positions})
}

func tables(t *testing.T, m *Model) map[string]*mnn.Blob {
	t.Helper()
	blobs := map[string]*mnn.Blob{}
	for i := range m.Parts[0].Graph.Ops {
		if b, ok := m.Parts[0].Graph.Ops[i].Param.(*mnn.Blob); ok && len(b.Float32s) > 0 {
			blobs[m.Parts[0].Graph.Ops[i].Name] = b
		}
	}
	if len(blobs) != 4 {
		t.Fatalf("%d tables", len(blobs))
	}
	return blobs
}

// The graph computes cos = cosH*cosL - sinH*sinL and sin = sinH*cosL + cosH*sinL in float32.
func TestRotaryTables(t *testing.T) {
	for _, c := range []struct {
		name      string
		positions []int
	}{
		{"qwen3-tied", []int{1, 2, 3, 5, 33, 512, 4095, 40960}},
		{"llama3-rope", []int{131072}},
		{"llama-linear-rope", []int{4096}},
	} {
		for _, n := range c.positions {
			t.Run(c.name+"/"+strconv.Itoa(n), func(t *testing.T) {
				d := decoderWithPositions(t, c.name, n)
				m, err := Classic(d, Options{})
				if err != nil {
					t.Fatal(err)
				}
				b := tables(t, m)
				half := d.Ropes[0].Dim / 2
				split := int(b["/rotary/table/cos_low"].Dims[0])
				high := int(b["/rotary/table/cos_high"].Dims[0])
				if split&(split-1) != 0 || split*high < n || split*(high-1) >= n || split > 4*high && n > 4 {
					t.Errorf("tables of %d and %d rows", split, high)
				}
				ch, sh := b["/rotary/table/cos_high"].Float32s, b["/rotary/table/sin_high"].Float32s
				cl, sl := b["/rotary/table/cos_low"].Float32s, b["/rotary/table/sin_low"].Float32s
				worst := 0.
				for p := range n {
					q, r := p/split*half, p%split*half
					for j, f := range d.Ropes[0].InvFreq {
						cos := float32(ch[q+j]*cl[r+j]) - float32(sh[q+j]*sl[r+j])
						sin := float32(sh[q+j]*cl[r+j]) + float32(ch[q+j]*sl[r+j])
						s, c := math.Sincos(float64(p) * f)
						worst = max(worst, math.Abs(float64(cos)-c), math.Abs(float64(sin)-s))
					}
				}
				if !(worst < rotaryBound) {
					t.Errorf("off by %g", worst)
				}
				t.Logf("split %d x %d, off by at most %.2g", high, split, worst)
			})
		}
	}
}

// The digest holds every bit of the tables still, on every architecture.
func TestRotaryTablesAreTheSameEverywhere(t *testing.T) {
	m, err := Classic(decoderWithPositions(t, "llama3-rope", 131072), Options{})
	if err != nil {
		t.Fatal(err)
	}
	sum := uint64(14695981039346656037)
	b := tables(t, m)
	for _, name := range []string{"cos_high", "sin_high", "cos_low", "sin_low"} {
		for _, v := range b["/rotary/table/"+name].Float32s {
			sum = (sum ^ uint64(math.Float32bits(v))) * 1099511628211
		}
	}
	const want = 0x47c2aa709eb28adf
	if sum != want {
		t.Errorf("digest %#x, want %#x", sum, uint64(want))
	}
}
