package forward

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// remote is a device that computes some chains, with keys and values of its own.
type remote struct {
	left, done, forgotten int
	version               uint64
	pasts                 kernel.Pasts
	own                   map[[3]int]*[2]kernel.Packed // by attention, window and head
}

func (d *remote) Compute(w kernel.Work) bool {
	c, ok := w.(*kernel.Chain)
	if !ok || c.Windows != nil || d.left == 0 {
		return false
	}
	d.left--
	d.done++
	if d.version != c.Pasts.Version {
		d.version, d.own, d.pasts = c.Pasts.Version, map[[3]int]*[2]kernel.Packed{}, *c.Pasts
	}
	mine := *c
	d.pasts.Of = nil
	for i, p := range c.Pasts.Of {
		of := p.Of
		p.Of = func(window, head int) (*kernel.Packed, *kernel.Packed) {
			key := [3]int{i, window, head}
			if d.own[key] == nil {
				keys, values := of(window, head)
				d.own[key] = &[2]kernel.Packed{clonePacked(keys), clonePacked(values)}
			}
			return &d.own[key][0], &d.own[key][1]
		}
		d.pasts.Of = append(d.pasts.Of, p)
	}
	mine.Pasts = &d.pasts
	mine.Do()
	return true
}

func clonePacked(p *kernel.Packed) (c kernel.Packed) {
	c.Resize(p.Rows(), p.Cols())
	copy(c.Factor().Data, p.Factor().Data)
	return c
}

func (*remote) Settle([]float32) error { return nil }
func (d *remote) Forget(*kernel.Pasts) { d.forgotten++ }
func (*remote) Room() int64            { return 1 << 40 }

// eachFamily calls f with the checkpoints of all families, in short tests of some of them.
func eachFamily(t *testing.T, f func(name string, d *arch.Decoder, src tensor.Source, windows [][]int32)) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(familiesDir, "*", "model.safetensors"))
	check(t, err)
	for i, file := range dirs {
		name := filepath.Base(filepath.Dir(file))
		if testing.Short() && i%8 != 0 && name != "llama" && name != "qwen2" && name != "qwen3" && name != "qwen3_moe" && name != "mistral" {
			continue
		}
		d, src := openSource(t, filepath.Dir(file))
		f(name, d, src, randomTokens(d.Vocab, 3, 80))
	}
}

// Windows that grow on a device have the same bits, also if it fails after some tokens, whose keys and values are lost then.
func TestResident(t *testing.T) {
	defer kernel.SetDevice(nil)
	resident := 0
	eachFamily(t, func(name string, d *arch.Decoder, src tensor.Source, windows [][]int32) {
		m := newModel(t, d, src, 2)
		m.Keep([]int64{1 << 30, 1 << 14}[len(name)%2]) // of the others a device reads what it needs
		kernel.SetDevice(nil)
		want := grown(t, m, windows, 3)
		for _, left := range []int{0, 2, 5, 1 << 30} { // the first 3 tokens fill the windows
			device := &remote{left: left}
			kernel.SetDevice(device)
			got := grown(t, m, windows, 3)
			if !slices.Equal(got, want) {
				t.Errorf("%s: other logits with %d tokens on a device", name, device.done)
			}
			if left < 1<<30 && device.done == left && left > 0 {
				resident++
				if device.forgotten != 1 {
					t.Errorf("%s: the device was told %d times to forget", name, device.forgotten)
				}
			}
		}
	})
	if resident < 8 {
		t.Errorf("a device lost tokens %d times", resident)
	}
	t.Logf("a device lost tokens %d times", resident)
}
