package assemble

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/verify"
)

// Subject opens the package in dir for verification, against src unless that is nil. Closeness is what the methods of the
// package promise; kept reports whether matrices that are codes in src are stored unchanged. The caller closes the package.
func Subject(dir string, m *manifest.Manifest, src *source.Source, c quant.Closeness, kept bool, o verify.Options) (*verify.Subject, error) {
	pkg, err := runtime.Open(dir)
	if err != nil {
		return nil, err
	}
	if most := pkg.Config.MaxPositions; most > 0 { // results at later positions are undefined
		o.Window = min(o.Window, most)
	}
	s := &verify.Subject{Package: pkg, Manifest: m, Options: o, Closeness: c}
	if src == nil {
		return s, nil
	}
	if s.Source, err = VerifySource(src, o); err != nil {
		pkg.Close()
		return nil, err
	}
	if kept && src.Quantized != nil {
		s.Exact = map[string]bool{}
		for _, name := range src.Quantized.Names() {
			s.Exact[name] = true
		}
	}
	return s, nil
}

// VerifySource returns the source in the form that packages are compared with.
func VerifySource(s *source.Source, o verify.Options) (*verify.Source, error) {
	f := s.Facts
	v := &verify.Source{
		Model: verifyModel(s.Decoder), Tensors: s.Weights, Tokenizer: s.Tokenizer,
		TokenizerJSON: func() ([]byte, error) { return source.TokenizerJSON(s.Dir) },
		Facts: verify.TokenizerFacts{
			Stop: f.Stop, Special: f.Special, Prefix: f.Prefix, ChatTemplate: f.ChatTemplate, BOS: f.BOS, EOS: f.EOS, Simplified: f.Simplified,
		},
	}
	if s.Heads != nil { // there are no weights
		return v, nil
	}
	limits := reference.Options{Threads: o.Threads, Memory: o.Memory}
	ref, err := reference.New(s.Decoder, s.Weights, limits)
	if err != nil {
		return nil, err
	}
	if err := Verification(ref, s.Decoder, o.Window).Within(VerifyShare*o.Memory, s.Decoder); err != nil {
		return nil, err
	}
	v.Reference = ref
	for _, t := range s.Model.Towers {
		tower, err := forward.NewTower(t, s.Weights, o.Threads)
		if err != nil {
			return nil, err
		}
		x := s.Pictures
		v.Vision = &verify.Vision{
			Rows: tower.Rows, GridRows: tower.GridRows, Hidden: ref.HiddenWith, Filter: x.Filter,
			Words: map[string]int32{"image_pad": x.Pad, "vision_start": x.Start, "vision_end": x.End},
		}
		if t.Tiles != nil {
			v.Vision.Words["global_image"] = x.Whole
		}
		if t.Slices != nil {
			v.Vision.Patch = t.Patch
			for i, key := range []string{"vision_slice_start_id", "vision_slice_end_id", "vision_id_start_id", "vision_id_end_id"} {
				v.Vision.Words[key] = append(x.Slice[:], x.Number[:]...)[i]
			}
		}
	}
	if e := s.Model.Ear; e != nil {
		ear, err := forward.NewEar(e, s.Weights, o.Threads)
		if err != nil {
			return nil, err
		}
		v.Hearing = &verify.Hearing{
			Rows: ear.Rows, Features: e.Features, Words: map[string]int32{"audio_pad": s.Sounds.Pad}, Start: s.Sounds.Start, End: s.Sounds.End,
			Hidden: func(ctx context.Context, window []int32, pad int32, rows []float32) ([]float32, error) {
				return ref.HiddenWith(ctx, window, pad, rows, nil)
			},
		}
	}
	if s.Decoder.Pooling != nil {
		v.Vectors = ref.Vectors
	}
	v.Part = func(layers []int) (verify.Reference, error) {
		part := *s.Decoder
		part.Layers = nil
		for _, i := range layers {
			part.Layers = append(part.Layers, s.Decoder.Layers[i])
		}
		return reference.New(&part, s.Weights, limits)
	}
	return v, nil
}

// verifyModel returns the facts about a model that checks use.
func verifyModel(d *arch.Decoder) verify.Model {
	m := verify.Model{
		Hidden: d.Hidden, Vocab: d.Vocab, Layers: len(d.Layers), Deep: d.Deep, MaxPositions: d.MaxPositions, Bounds: d.Bounds(), Kinds: d.Kinds(),
		AbsolutePositions: d.AbsolutePositions(), Embedding: cmp.Or(d.Lookup, d.Embedding).Tensor, Claimed: d.Claimed, Views: map[string][]string{},
	}
	for i := range d.Views {
		m.Views[d.Views[i].Name] = d.Views[i].Parts()
	}
	return m
}

// VerifyShare is the divisor of the memory limit that gives the budget of an evaluation; the rest is for allocations that the
// budget does not count.
const VerifyShare = 2

// Demand is the least memory of a part of a run.
type Demand struct {
	What  string
	Bytes int64
}

// Verification is the demand of comparing a package with the source d in windows of length tokens: the reference's, or what it and
// both sessions of the package take together. In addition to what does not depend on the limit, sessions keep weights in a share of it.
func Verification(ref *reference.Model, d *arch.Decoder, length int) Demand {
	least, vocab := ref.LeastMemory(length), int64(d.Vocab)
	weights, token := ref.Bytes()
	fixed := least + verify.LeastBytes(d.Vocab, length, token) + tables*8*vocab*int64(d.Hidden)/scaled
	together := min(int64(float64(fixed)/(1-verify.KeptShare/VerifyShare)), fixed+2*weights)
	return Demand{fmt.Sprintf("verification with windows of %d tokens", length), max(VerifyShare*least, together)}
}

// tables is how often the scales and zero terms of the head are in memory as floats, counting the session in half precision and
// garbage that is not collected yet: with 3, two layers of a model 1024 wide with 151,936 tokens exceeded their limit by 68 MiB.
// scaled are the columns of a block.
const tables, scaled = 7, 64

// Within returns a [MemoryError] if a limit in bytes is too small for the demand and the tables of the program itself.
func (d Demand) Within(limit int64, model *arch.Decoder) error {
	heap := 16<<20 + 256*int64(model.Vocab) // most of it for the words of a tokenizer
	if need := d.Bytes + heap; need > limit {
		return &MemoryError{d.What, need, limit}
	}
	return nil
}

// MemoryError rejects a memory limit that is too low for some work.
type MemoryError struct {
	What        string
	Need, Limit int64 // bytes
}

func (e *MemoryError) Error() string {
	need := (e.Need + 1<<20 - 1) >> 20 << 20 // whole mebibytes that suffice
	return fmt.Sprintf("%s needs %s of memory, the limit is %s", e.What, recipes.Size(need), recipes.Size(e.Limit))
}
