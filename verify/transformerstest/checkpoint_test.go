//go:build transformers

package transformerstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// object is a config, or a change of one: values by keys, where "a.b" is key b within the object a.
type object = map[string]any

// removed is the value of keys that a change takes away.
const removed = "(removed)"

// bound is how far the logits of the two may be apart, in nats: in the mean over all positions, and at the worst one. What
// a change has to be worth to count is more than that.
type bound struct{ mean, worst float64 }

var (
	// plainBound is a hundred times what roundings of float32 make of it.
	plainBound = bound{1e-9, 1e-8}
	// deltaBound is for models with the gated delta rule, whose states amplify roundings, at single tokens by far: transformers
	// in float32 is up to 4e-9 nats from transformers in float64 at such a token, the reference up to 2e-7.
	deltaBound = bound{1e-8, 1e-6}
	// deepBound is for packages of Gemma 4, whose scores are not divided by a root and whose four norms a layer scale roundings up again:
	// three layers are 5e-11 nats from transformers and seven 1.5e-9 to 2.2e-9, 3e-8 at the worst position, with experts and without,
	// for heads of any width. The reference goes from 2.5e-12 to 1e-10 there, and transformers in float32 is 6e-11 from float64.
	deepBound = bound{1e-8, 1e-7}
)

// checkpoint is a directory with a config and weights, and token ids to run.
type checkpoint struct {
	dir    string
	config object
	ids    [][]int32
	// logits are those of transformers, of all ids.
	logits []float32
}

// lengths are those of the recorded outputs: one within all windows and original lengths of the small checkpoints, and one
// beyond.
var lengths = []int{24, 96}

// testdata opens a checkpoint of pipeline/arch.
func testdata(t *testing.T, name string) *checkpoint {
	t.Helper()
	c := &checkpoint{dir: filepath.Join("..", "..", "pipeline", "arch", "testdata", name)}
	b, err := os.ReadFile(filepath.Join(c.dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c.config = parse(t, b)
	for i, n := range lengths {
		g, err := stagetest.ReadGolden(filepath.Join(c.dir, "golden.safetensors"), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		if len(g.IDs) != n {
			t.Fatalf("%d recorded ids", len(g.IDs))
		}
		c.ids, c.logits = append(c.ids, g.IDs), append(c.logits, g.Logits...)
	}
	return c
}

// made is a checkpoint of random weights for a config, with ids of its own.
func made(t *testing.T, config object) *checkpoint {
	t.Helper()
	c := &checkpoint{config: config}
	for i, n := range lengths {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		list := make([]int32, n)
		for k := range list {
			list[k] = int32(3 + r.IntN(plainIDs-3))
		}
		c.ids = append(c.ids, list)
	}
	r := c.run(t, nil, 1)
	r.wantEqual(t)
	c.dir, c.logits = r.dir, readFloats(t, filepath.Join(r.dir, "logits"))
	return c
}

// plainIDs bounds the ids for made checkpoints, which use those above for pictures.
const plainIDs = 300

// parse reads JSON and keeps numbers as they are written.
func parse(t *testing.T, b []byte) (o object) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

// edited is a config with a change.
func edited(config, change object) object {
	out := maps.Clone(config)
	for _, key := range slices.Sorted(maps.Keys(change)) {
		value := change[key]
		if outer, inner, ok := strings.Cut(key, "."); ok {
			within, _ := out[outer].(object)
			out[outer] = edited(within, object{inner: value})
		} else if value == removed {
			delete(out, key)
		} else {
			if out == nil {
				out = object{}
			}
			out[key] = value
		}
	}
	return out
}

// result is what became of a changed checkpoint.
type result struct {
	// refusal is the error of Describe, rejection that of transformers.
	refusal   error
	rejection string
	// fresh says that the change made new weights necessary.
	fresh bool
	// changed is how far the logits of transformers are from those of the unchanged checkpoint at the worst position, in nats.
	// wrong is how far those of the reference are from transformers in the mean, and worst at the worst position.
	changed, wrong, worst float64
	bound                 bound
	// dir holds the changed checkpoint.
	dir string
}

// run gives a changed config to both. With a seed the weights are new, otherwise they are those of the checkpoint if they
// fit.
func (c *checkpoint) run(t *testing.T, change object, seed int) (r result) {
	t.Helper()
	config := edited(c.config, change)
	r.dir = t.TempDir()
	b, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "config.json"), b, 0o666); err != nil {
		t.Fatal(err)
	}
	ids := c.within(config)
	j := job{Dir: r.dir, IDs: ids, Out: filepath.Join(r.dir, "logits")}
	var a answer
	if seed == 0 {
		weights, err := filepath.Abs(filepath.Join(c.dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(r.dir, "model.safetensors")
		if err := os.Symlink(weights, copied); err != nil {
			t.Fatal(err)
		}
		if a = do(t, j); a.Misfit != nil {
			if err := os.Remove(copied); err != nil {
				t.Fatal(err)
			}
			seed, r.fresh = 1, true
		}
	}
	if seed != 0 {
		j.Seed = &seed
		a = do(t, j)
	}
	if a.Misfit != nil {
		a.Error = fmt.Sprint("its own weights do not fit: ", a.Misfit)
	}
	r.rejection = a.Error
	var want []float32
	if r.rejection == "" {
		want = readFloats(t, j.Out)
		if r.changed = 1; !r.fresh && len(want) == len(c.logits) {
			_, r.changed = divergence(c.logits, want, len(want)/tokens(ids))
		}
	} else if _, err := os.Stat(filepath.Join(r.dir, "model.safetensors")); err != nil {
		// No weights could be made; those at hand show what Describe thinks of the keys.
		link, _ := filepath.Abs(filepath.Join(c.dir, "model.safetensors"))
		if err := os.Symlink(link, filepath.Join(r.dir, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
	}
	got, bound, err := compute(t, r.dir, b, ids)
	r.bound = bound
	if r.refusal = err; err != nil || r.rejection != "" {
		return r
	}
	if len(got) != len(want) {
		t.Fatalf("%d logits, want %d", len(got), len(want))
	}
	r.wrong, r.worst = divergence(want, got, len(want)/tokens(ids))
	return r
}

// within are the ids, folded into the vocabulary of a config.
func (c *checkpoint) within(config object) [][]int32 {
	inner := config
	if text, ok := config["text_config"].(object); ok {
		inner = text
	}
	vocab := 0
	fmt.Sscan(fmt.Sprint(inner["vocab_size"]), &vocab)
	out := make([][]int32, len(c.ids))
	for i, list := range c.ids {
		out[i] = slices.Clone(list)
		for k := range out[i] {
			if vocab > 3 && out[i][k] >= int32(vocab) {
				out[i][k] = 3 + out[i][k]%int32(vocab-3)
			}
		}
	}
	return out
}

func tokens(ids [][]int32) (n int) {
	for _, list := range ids {
		n += len(list)
	}
	return n
}

// tied is a change that gives a model a head of its own, or not.
func (c *checkpoint) tied(tied bool) object {
	if c.config["model_type"] == "qwen2_audio" { // whose class ties nothing
		tied = false
	}
	change := object{"tie_word_embeddings": tied}
	if c.config["text_config"] != nil {
		change["text_config.tie_word_embeddings"] = tied
	}
	return change
}

// compute gives the logits of the reference, or why the checkpoint is refused.
func compute(t *testing.T, dir string, config []byte, ids [][]int32) (logits []float32, within bound, refusal error) {
	t.Helper()
	src, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	described, err := arch.Describe(config, src.Tensors(), arch.Options{})
	if err != nil {
		return nil, bound{}, err
	}
	d := described.Text
	for name, of := range d.Duplicates() {
		if a, b := read(t, src, name), read(t, src, of); !bytes.Equal(a, b) {
			return nil, bound{}, fmt.Errorf("%s differs from %s", name, of)
		}
	}
	opened, err := arch.Open(d, src)
	if err != nil {
		t.Fatal(err)
	}
	m, err := reference.New(d, opened, reference.Options{Threads: 1})
	if err != nil {
		return nil, bound{}, fmt.Errorf("reference: %w", err)
	}
	if err := m.Score(t.Context(), ids, func(tile reference.Tile) error {
		logits = append(logits, tile.Logits...)
		return nil
	}); err != nil {
		return nil, bound{}, fmt.Errorf("reference: %w", err)
	}
	within = plainBound
	for _, layer := range d.Layers {
		for _, b := range layer {
			if _, ok := b.Block.(*arch.DeltaNet); ok {
				within = deltaBound
			}
		}
	}
	return logits, within, nil
}

func read(t *testing.T, src tensor.Source, name string) []byte {
	t.Helper()
	r, err := src.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// divergence is KL(want || got) of rows of vocab logits: the mean, and the largest.
func divergence(want, got []float32, vocab int) (mean, worst float64) {
	for at := 0; at < len(want); at += vocab {
		p, q := want[at:at+vocab], got[at:at+vocab]
		kl := kernel.KL(p, q, kernel.LogSumExp(p), kernel.LogSumExp(q))
		mean += kl * float64(vocab) / float64(len(want))
		if !(kl <= worst) {
			worst = kl
		}
	}
	return mean, worst
}
