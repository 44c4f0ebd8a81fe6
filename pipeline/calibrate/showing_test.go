package calibrate

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// shownJob is a job with prompts of random pictures, or clips, of which the last two are not learned from: they are those of held.
func shownJob(t *testing.T, family string, methods ...quant.Method) (j job, held []*Showing, probe []Prompt) {
	t.Helper()
	m, src := openModel(t, familyDir(family))
	d := m.Text
	j = newJob(t, d, src, randomText(d, 8, 48), methods...)
	var list []*Showing
	for _, tower := range m.Towers {
		list = append(list, &Showing{Name: "vision", Tower: tower})
	}
	if m.Ear != nil {
		list = append(list, &Showing{Name: "audio", Ear: m.Ear})
	}
	const count = 14
	for which, s := range list {
		for i := range count {
			size, pad, values := forward.Shown{}, 0, 0
			switch {
			case s.Ear != nil:
				size.Width, pad = 8+3*i, s.Ear.Pad
				values = s.Ear.Mels * size.Width
			case s.Tower.Grid:
				size.Height, size.Width, pad = s.Tower.Cell*(1+i%3), s.Tower.Cell*(2+i%2), s.Tower.Pad
				values = size.Height * size.Width * 3 * s.Tower.Frames * s.Tower.Patch * s.Tower.Patch
			default:
				pad, values = s.Tower.Pad, 3*s.Tower.Size*s.Tower.Size
			}
			if pad < 0 { // an id that the tokenizer does not have
				pad = d.Vocab - 1
			}
			s.Sizes = append(s.Sizes, size)
			s.Read = func(i int) ([]float32, error) {
				r := rand.New(rand.NewPCG(uint64(i), 3))
				n := values
				switch size := s.Sizes[i]; {
				case s.Ear != nil:
					n = s.Ear.Mels * size.Width
				case s.Tower.Grid:
					n = size.Height * size.Width * 3 * s.Tower.Frames * s.Tower.Patch * s.Tower.Patch
				}
				x, level := make([]float32, n), float32(r.NormFloat64())
				for k := range x {
					if k%97 == 0 {
						level = float32(r.NormFloat64())
					}
					x[k] = level + float32(0.3*float32(r.NormFloat64()))
				}
				return x, nil
			}
			e, err := s.open(src, 1)
			check(t, err)
			p := Prompt{Pad: int32(pad), Showing: which, Items: []int{i}}
			if size.Height > 0 {
				p.Grids = [][2]int{{size.Height / s.Tower.Cell, size.Width / s.Tower.Cell}}
			}
			text := slices.DeleteFunc(slices.Clone(j.Windows[i%8]), func(id int32) bool { return id == p.Pad })
			p.Window = slices.Concat(text[:3], slices.Repeat([]int32{p.Pad}, e.Count(size)), text[3:19])
			if i < count-2 {
				j.Prompts = append(j.Prompts, p)
			} else {
				probe = append(probe, p)
			}
		}
		learned := *s
		learned.Sizes = s.Sizes[:count-2]
		j.Shown = append(j.Shown, &learned)
		p := quant.Policy{Default: quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16}, AutoBlock: true}
		check(t, s.linears(src, func(l *arch.Linear) {
			p := p
			if l.Weight.Cols%2 != 0 {
				p.Default.Bits = 8 // rows end on a byte
			}
			c, err := p.Choose(l.Weight.Tensor, quant.Body, l.Weight.Rows, l.Weight.Cols)
			check(t, err)
			j.Specs[l.Weight.Tensor] = c.Spec
		}))
	}
	return j, list, probe
}

// shownFamilies have all kinds of towers and projectors.
var shownFamilies = []string{"llava", "gemma3", "smolvlm", "internvl", "lfm2_vl", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5",
	"glm_ocr", "qwen2_audio", "qwen2_5_omni", "gemma4", "lfm2_audio", "minicpmv", "gemma4-hearing", "llava_qwen2-square"}

// A walk takes pictures through towers, and prompts with them through the text model, as forward does.
func TestShownWalk(t *testing.T) {
	for i, family := range shownFamilies {
		if testing.Short() && i%3 != 0 {
			continue
		}
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			j, held, probe := shownJob(t, family, quant.RTN{})
			o := j.Options
			o.Shown, o.Prompts = held, probe
			for _, memory := range []int64{1, plenty} {
				o.Memory, o.Dir = memory, t.TempDir()
				got, err := o.look(t.Context(), j.Source)
				check(t, err)
				m, err := forward.New(o.Decoder, o.Source, 2)
				check(t, err)
				for i, p := range probe {
					rows, err := wholeRows(t, held[p.Showing], j.Source, p.Items[0])
					check(t, err)
					if !slices.Equal(rows, got.rows[i]) {
						t.Fatalf("prompt %d: other rows", i)
					}
					in := &forward.Insertion{Window: p.Window, Pad: p.Pad, Rows: rows, Grids: p.Grids}
					e, err := m.Embedding()
					check(t, err)
					h, err := e.States(t.Context(), [][]int32{p.Window})
					check(t, err)
					deep, err := m.Insert(t.Context(), h, in)
					check(t, err)
					for k := range o.Decoder.Layers {
						check(t, m.Layer(k).Forward(t.Context(), h, m.Windows(in)))
						if k < len(deep) {
							kernel.Add(h, h, deep[k])
						}
					}
					head, err := m.Head()
					check(t, err)
					h = head.Input(h, h)
					if want := h[len(h)-len(got.final[i]):]; len(want) != 16*o.Decoder.Hidden || !slices.Equal(want, got.final[i]) {
						t.Fatalf("prompt %d: other states of %d tokens", i, len(want)/o.Decoder.Hidden)
					}
				}
			}
		})
	}
}

// wholeRows are what forward makes of a picture or clip in one go.
func wholeRows(t *testing.T, s *Showing, src tensor.Source, i int) ([]float32, error) {
	t.Helper()
	x, err := s.Read(i)
	check(t, err)
	if s.Ear != nil {
		e, err := forward.NewEar(s.Ear, src, 2)
		check(t, err)
		return e.Rows(t.Context(), x)
	}
	tower, err := forward.NewTower(s.Tower, src, 2)
	check(t, err)
	if s.Tower.Grid {
		return tower.GridRows(t.Context(), x, s.Sizes[i].Height, s.Sizes[i].Width)
	}
	return tower.Rows(t.Context(), x)
}

// At 4 bits a tower whose codes were chosen on pictures is closer to the float tower on pictures that it did not see than a rounded one.
func TestShownFamilies(t *testing.T) {
	awq, gptq := quant.NewAWQ(), quant.NewGPTQ()
	awq.Step, gptq.Candidates = 0.4, 4
	for i, family := range shownFamilies {
		if testing.Short() && i > 0 {
			continue
		}
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			seen := func(prompts bool, methods ...quant.Method) Seen {
				j, held, probe := shownJob(t, family, methods...)
				if !prompts {
					j.Prompts = nil
				}
				j.Dir = t.TempDir()
				f := j.run(t, j.Dir)
				if n := len(j.Specs); len(f.Ops) != n {
					t.Errorf("%d matrices are finished, want %d", len(f.Ops), n)
				}
				x, err := See(t.Context(), j.Options, j.Scheme, f, held, probe)
				check(t, err)
				return x
			}
			nearest, text, plain, folded := seen(true, quant.RTN{}), seen(false, gptq), seen(true, gptq), seen(true, awq, gptq)
			t.Logf(family+", squared error of rows, and KL: rtn %.3g %.3g, gptq on text %.3g %.3g, gptq %.3g %.3g, awq and gptq %.3g %.3g",
				nearest.Rows, nearest.KL, text.Rows, text.KL, plain.Rows, plain.KL, folded.Rows, folded.KL)
			if !(plain.Rows < nearest.Rows) || !(folded.Rows < nearest.Rows) || !(plain.KL < nearest.KL) {
				t.Errorf("rtn %+v, gptq %+v, awq and gptq %+v", nearest, plain, folded)
			}
		})
	}
}

// Neither threads nor memory nor an end in between change a byte of what is calibrated with pictures.
func TestShownBytes(t *testing.T) {
	awq, gptq := quant.NewAWQ(), quant.NewGPTQ()
	awq.Step, gptq.Candidates = 0.4, 4
	for i, family := range []string{"qwen2_audio", "qwen3_vl", "qwen2_5_vl", "gemma3"} {
		if testing.Short() && i > 0 {
			continue
		}
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			j, _, _ := shownJob(t, family, awq, gptq)
			dir := t.TempDir()
			f := j.run(t, dir)
			want := content(t, dir)
			for _, c := range []struct {
				threads int
				memory  int64
			}{{1, 1}, {3, 1 << 20}} {
				dir := t.TempDir()
				j.on(c.threads, c.memory).run(t, dir)
				same(t, fmt.Sprintf("%d threads, %d bytes", c.threads, c.memory), want, content(t, dir))
				noActivations(t, dir)
			}
			for _, n := range []int{3, len(f.Ops) - 4} {
				dir := t.TempDir()
				k, left, stopped := j, n, errors.New("stopped")
				k.Dir = dir
				k.Source = &failing{Source: j.Source, broken: func() error {
					if left <= 0 {
						return stopped
					}
					return nil
				}}
				k.Progress = func(int64, int64) { left-- }
				if _, err := Quantize(t.Context(), k.Options, k.Scheme); err == nil {
					t.Fatal("it did not stop")
				}
				if g := j.run(t, dir); g.Digest() != f.Digest() {
					t.Errorf("after %d matrices: other digest", n)
				}
				same(t, "continued", want, content(t, dir))
			}
		})
	}
}

// Sensitivities of towers are the same for any number of threads and after an end in between; more bits cost less.
func TestMeasureShown(t *testing.T) {
	for i, family := range []string{"llava", "qwen3_vl", "qwen2_audio"} {
		if testing.Short() && i > 0 {
			continue
		}
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			j, held, probe := shownJob(t, family, quant.NewGPTQ())
			ms := Measuring{Chain: j.Chain, Scale: tensor.F16, Probe: j.Windows[:1], Options: func(w arch.Weight, _ bool) (list []quant.Spec) {
				for _, bits := range []int{2, 4, 8} {
					s := quant.Spec{Bits: bits, Block: quant.WholeRow, Scale: tensor.F16}
					if _, err := s.Layout(w.Rows, w.Cols); err == nil {
						list = append(list, s)
					}
				}
				return list
			}}
			dir := t.TempDir()
			measure := func(threads int) []Sensitivity {
				o := j.on(threads, plenty).Options
				o.Dir = dir
				list, err := MeasureShown(t.Context(), o, ms, held, probe)
				check(t, err)
				return list
			}
			first := measure(3)
			matrices := 0
			check(t, j.Shown[0].linears(j.Source, func(*arch.Linear) { matrices++ }))
			if len(first) != matrices {
				t.Errorf("%d matrices were measured, want %d", len(first), matrices)
			}
			for _, s := range first {
				for i, o := range s.Options {
					if !(o.KL > 0) || i > 0 && !(o.KL < s.Options[i-1].KL) {
						t.Errorf("%s: %+v", s.Tensor, s.Options)
						break
					}
				}
			}
			b, err := os.ReadFile(filepath.Join(dir, shownDir, measuredFile))
			check(t, err)
			for _, keep := range []int{len(b) / 2, 0} { // of the journal
				check(t, os.WriteFile(filepath.Join(dir, shownDir, measuredFile), b[:keep], 0o666))
				if d := cmp.Diff(first, measure(1)); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// failing is a source that cannot be read from some time on.
type failing struct {
	tensor.Source
	broken func() error
}

func (f *failing) Open(name string) (*io.SectionReader, error) {
	if err := f.broken(); err != nil {
		return nil, err
	}
	return f.Source.Open(name)
}
