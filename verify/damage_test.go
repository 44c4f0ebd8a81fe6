package verify_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/verify"
)

// damage is one defect of a package, or of the checkpoint it is compared with, and all checks that detect it.
type damage struct {
	name string
	// files changes a copy of the good package; subject changes what is examined.
	files   func(e *edition)
	subject func(t *testing.T, s *verify.Subject)
	// source is another checkpoint; the good one if nil.
	source func(t *testing.T) string
	// rebuild exports source again with these sections of a recipe, instead of copying the good package.
	rebuild  string
	unsealed bool
	// fails lists the failing checks in the order of the table; detail is a part of the first one's detail.
	fails  []string
	detail string
}

// damages has a method for every check, named like the check, that lists at least one damage. The methods of a new check's
// damages lie in the test file of the check.
type damages struct{}

// damagesByCheck calls the methods of damages.
func damagesByCheck() map[string][]damage {
	all := map[string][]damage{}
	v := reflect.ValueOf(damages{})
	for i := range v.NumMethod() {
		all[strings.ToLower(v.Type().Method(i).Name)] = v.Method(i).Interface().(func() []damage)()
	}
	return all
}

func (damages) Layout() []damage {
	return []damage{
		{name: "a byte behind the weights", files: func(e *edition) {
			e.file(mnn.WeightFile(""), func(b []byte) []byte { return append(b, 0) })
		}, fails: []string{"layout"}, detail: "tensors cover"},
		{name: "spans overlap", files: func(e *edition) {
			e.m.Tensors[1].Offset--
		}, fails: []string{"layout"}, detail: "begins at"},
		{name: "two norms swapped in the graph", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, a := op(e.t, g, "/layers.0/input_layernorm")
				_, b := op(e.t, g, "/layers.1/input_layernorm")
				p, q := a.Param.(*mnn.LayerNorm), b.Param.(*mnn.LayerNorm)
				p.External, q.External = q.External, p.External
			})
		}, fails: []string{"layout"}, detail: "/layers.0/input_layernorm"},
		{name: "a file that is not listed", files: func(e *edition) {
			e.seal()
			if err := os.WriteFile(e.path("more.txt"), nil, 0o666); err != nil {
				e.t.Fatal(err)
			}
		}, unsealed: true, fails: []string{"layout"}, detail: `"more.txt"`},
		{name: "config.json names another content", files: func(e *edition) {
			e.seal()
			e.json(assemble.ConfigFile, "llmexport", map[string]any{"content": digest.Of(nil)})
			e.list()
			e.write()
		}, unsealed: true, fails: []string{"layout"}, detail: "config.json names the content"},
		{name: "a digest of a tensor", files: func(e *edition) {
			e.seal()
			e.m.Tensors[2].SHA256 = strings.Repeat("0", 64)
			e.write()
		}, unsealed: true, fails: []string{"layout"}, detail: "SHA-256"},
	}
}

func (damages) Coverage() []damage {
	return []damage{
		{name: "one more tensor in the source", subject: func(t *testing.T, s *verify.Subject) {
			s.Source.Tensors = &more{s.Source.Tensors, "model.layers.0.mlp.extra.weight"}
		}, fails: []string{"coverage"}, detail: "not in the package: model.layers.0.mlp.extra.weight"},
		{name: "a tensor stored under another name", files: func(e *edition) {
			for i := range e.m.Tensors {
				if e.m.Tensors[i].Name == "model.layers.1.mlp.up_proj.weight" {
					e.m.Tensors[i].Name = "model.layers.1.mlp.gone.weight"
				}
			}
		}, fails: []string{"coverage", "weights", "graph"}, detail: "not in the package: model.layers.1.mlp.up_proj.weight"},
		{name: "a reason that the description does not give", subject: func(t *testing.T, s *verify.Subject) {
			s.Source.Model.Claimed["model.layers.0.rotary.inv_freq"] = "weight"
			s.Source.Tensors = &more{s.Source.Tensors, "model.layers.0.rotary.inv_freq"}
		}, fails: []string{"coverage"}, detail: "inv_freq"},
	}
}

func (damages) Weights() []damage {
	return []damage{
		{name: "two scales swapped", files: func(e *edition) {
			e.span("layers.1.mlp.up_proj", func(b []byte) {
				alpha := b[alphaOf(256, 768):]
				lo, hi := 0, 0
				scale := func(i int) float32 {
					var v [1]float32
					kernel.F16ToF32(v[:], alpha[4*i+2:4*i+4])
					return v[0]
				}
				for i := range 4 * 768 {
					if scale(i) < scale(lo) {
						lo = i
					}
					if scale(i) > scale(hi) {
						hi = i
					}
				}
				for j := 2; j < 4; j++ {
					alpha[4*lo+j], alpha[4*hi+j] = alpha[4*hi+j], alpha[4*lo+j]
				}
			})
		}, fails: []string{"weights"}, detail: "model.layers.1.mlp.up_proj.weight: row"},
		{name: "one code", files: func(e *edition) {
			e.span("layers.2.self_attn.q_proj", func(b []byte) { b[mnn.HeaderSize(256, 256, 4)+1234] ^= 0x80 })
		}, fails: []string{"weights"}, detail: "model.layers.2.self_attn.q_proj.weight: row 9: weight 164 is"},
		{name: "one code by one step", files: func(e *edition) {
			// Half a step is the bound of rounding to nearest: a neighbouring code is outside, or just inside at a tie.
			e.span("layers.2.self_attn.q_proj", func(b []byte) {
				codes := b[mnn.HeaderSize(256, 256, 4):][:256*128]
				for i := range codes[:64] {
					codes[i] ^= 0x10
				}
			})
		}, fails: []string{"weights"}, detail: "layers.2.self_attn.q_proj.weight: row 0"},
		{name: "a norm", files: func(e *edition) {
			e.span("layers.3.post_attention_layernorm", func(b []byte) { b[4*17] ^= 1 })
		}, fails: []string{"weights"}, detail: "layers.3.post_attention_layernorm.weight: element 17"},
		{name: "a zero row", files: func(e *edition) {
			e.span("layers.0.mlp.gate_proj", func(b []byte) {
				// Four blocks of row 5, value of the middle code and scale each.
				clear(b[alphaOf(256, 768)+5*16:][:16])
			})
		}, fails: []string{"weights"}, detail: "layers.0.mlp.gate_proj.weight: row 5"},
		{name: "a scale that is no number", files: func(e *edition) {
			e.span("layers.0.mlp.gate_proj", func(b []byte) {
				binary.LittleEndian.PutUint16(b[alphaOf(256, 768)+2:], 0x7e00)
			})
		}, fails: []string{"weights", "layers", "perplexity", "kl", "decode", "positions", "activations"}, detail: "NaN"},
		{name: "an infinite scale", files: func(e *edition) {
			e.span("layers.0.mlp.gate_proj", func(b []byte) {
				binary.LittleEndian.PutUint16(b[alphaOf(256, 768)+2:], 0x7c00)
			})
		}, fails: []string{"weights", "layers", "perplexity", "kl", "decode", "positions", "activations"}, detail: "layers.0.mlp.gate_proj.weight: row 0: value"},
		{name: "a spec that is another", files: func(e *edition) {
			for i := range e.m.Tensors {
				if strings.Contains(e.m.Tensors[i].Name, "layers.1.mlp.up_proj") {
					e.m.Tensors[i].Spec = "w4-b32-asym"
				}
			}
		}, fails: []string{"weights"}, detail: "the manifest says w4-b32-asym"},
	}
}

func (damages) Tokenizer() []damage {
	return []damage{
		{name: "two ids swapped", files: func(e *edition) {
			e.tokenizer(func(model map[string]any) {
				v := model["vocab"].(map[string]any)
				v["Ġpeople"], v["Ġwar"] = v["Ġwar"], v["Ġpeople"]
			})
		}, fails: []string{"tokenizer"}, detail: "plain strings get different ids"},
		{name: "another stop id", subject: func(t *testing.T, s *verify.Subject) {
			s.Source.Facts.Stop = append(s.Source.Facts.Stop, 7)
		}, fails: []string{"tokenizer", "template"}, detail: "stop ids are"},
		{name: "another chat template", files: func(e *edition) {
			e.json(assemble.LLMConfigFile, "jinja", map[string]string{"chat_template": "{{ messages }}", "eos": "<|im_end|>"})
		}, fails: []string{"tokenizer", "template"}, detail: "different chat templates"},
		{name: "a merge left out", files: func(e *edition) {
			e.tokenizer(func(model map[string]any) {
				m := model["merges"].([]any)
				model["merges"] = append(slices.Clone(m[:3]), m[4:]...)
			})
		}, fails: []string{"tokenizer"}, detail: "strings get different ids"},
	}
}

func (damages) Template() []damage {
	return []damage{
		{name: "the source ends turns otherwise", subject: func(_ *testing.T, s *verify.Subject) {
			s.Source.Facts.ChatTemplate = strings.ReplaceAll(s.Source.Facts.ChatTemplate, "<|im_end|>", "<|im_end|>!")
		}, fails: []string{"template"}, detail: "conversations are rendered differently: "},
		{name: "plain conversations of a simplified template", subject: func(_ *testing.T, s *verify.Subject) {
			s.Source.Facts.ChatTemplate += "."
			s.Source.Facts.Simplified = true
		}, fails: []string{"template"}, detail: "renders a plain conversation differently"},
		{name: "a stop id is missing", subject: func(_ *testing.T, s *verify.Subject) {
			s.Source.Facts.Stop = append(s.Source.Facts.Stop, 7)
		}, fails: []string{"tokenizer", "template"}, detail: "the stop ids [7] of the source are missing"},
	}
}

func (damages) Graph() []damage {
	return []damage{
		{name: "a tensor of another shape belongs to the op", files: func(e *edition) {
			for i := range e.m.Tensors {
				switch t := &e.m.Tensors[i]; t.Name {
				case "model.layers.1.mlp.up_proj.weight":
					t.Name = "model.layers.1.self_attn.q_proj.weight"
				case "model.layers.1.self_attn.q_proj.weight":
					t.Name = "model.layers.1.mlp.up_proj.weight"
				}
			}
		}, fails: []string{"weights", "graph"}, detail: "has 196608 elements, the op takes 65536"},
		{name: "SiLU is another op", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, o := op(e.t, g, "/layers.1/mlp/silu")
				o.Param.(*mnn.Unary).Op = mnn.UnaryNeg
			})
		}, fails: []string{"graph", "layers", "perplexity", "kl", "decode"}, detail: "KL"},
		{name: "gate and up added", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, o := op(e.t, g, "/layers.3/mlp/product")
				o.Param.(*mnn.Binary).Op = mnn.BinaryAdd
			})
		}, fails: []string{"graph", "layers", "perplexity", "kl", "decode"}, detail: "KL"},
		{name: "the norm of the queries bypassed", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, norm := op(e.t, g, "/layers.2/self_attn/q_norm")
				redirect(g, norm.Outputs[0], norm.Inputs[0])
			})
		}, fails: []string{"graph"}, detail: "KL"},
		{name: "the norm of the keys bypassed", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, norm := op(e.t, g, "/layers.2/self_attn/k_norm")
				redirect(g, norm.Outputs[0], norm.Inputs[0])
			})
		}, fails: []string{"graph", "perplexity", "kl", "decode"}, detail: "KL"},
		{name: "another epsilon", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, o := op(e.t, g, "/layers.0/input_layernorm")
				o.Param.(*mnn.LayerNorm).Epsilon = 1e-5
			})
		}, fails: []string{"graph"}, detail: "KL"},
		{name: "keys that are not rotated", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, attention := op(e.t, g, "/layers.1/self_attn/FusedAttention")
				_, k := op(e.t, g, "/layers.1/self_attn/k_norm")
				attention.Inputs[1] = k.Outputs[0]
			})
		}, fails: []string{"graph", "perplexity", "kl", "decode", "positions"}, detail: "KL"},
		{name: "a residual left out", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, o := op(e.t, g, "/layers.1/self_attn/residual")
				redirect(g, o.Outputs[0], o.Inputs[1])
			})
		}, fails: []string{"graph", "layers", "perplexity", "kl", "decode"}, detail: "KL"},
		{name: "a rotary table at a low position", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, o := op(e.t, g, "/rotary/table/sin_low")
				o.Param.(*mnn.Blob).Float32s[32*7] *= -1
			})
		}, fails: []string{"graph", "perplexity", "positions"}, detail: "KL"},
	}
}

func (damages) Layers() []damage {
	return []damage{
		{name: "weights of another layer", files: func(e *edition) {
			var other []byte
			e.span("layers.1.mlp.down_proj", func(b []byte) { other = slices.Clone(b) })
			e.span("layers.2.mlp.down_proj", func(b []byte) { copy(b, other) })
		}, fails: []string{"weights", "layers", "perplexity", "kl", "decode"}, detail: "layer 2 is the first bad one"},
		{name: "a layer's output cannot be found", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, o := op(e.t, g, mnn.LayerOutput(1))
				o.Name = "/else"
			})
		}, fails: []string{"layers"}, detail: `layer 1: the graph has no op "/layers.1/mlp/residual"`},
	}
}

func (damages) Source() []damage {
	return []damage{
		{name: "another rope_theta", rebuild: "verify: {enabled: false}", source: func(t *testing.T) string {
			return editCheckpoint(t, tiny, func(path func(string) string) {
				b, err := os.ReadFile(path("config.json"))
				if err != nil {
					t.Fatal(err)
				}
				b = setKey(t, b, "rope_parameters", map[string]any{"rope_theta": 2.0, "rope_type": "default"})
				if err := os.WriteFile(path("config.json"), b, 0o666); err != nil {
					t.Fatal(err)
				}
			})
		}, subject: func(t *testing.T, s *verify.Subject) {
			s.Options.Checks.Perplexity.MaxSource = new(2.0 * tinyPerplexity)
			s.Options.Checks.KL.Max = new(1.0) // what the source cannot do costs nothing here
		}, fails: []string{"source"}, detail: "would be absurd"},
		{name: "random weights", rebuild: "quantize: {block: 32}\nverify: {enabled: false}", source: func(*testing.T) string { return families + "qwen3-tied" },
			fails: []string{"source"}, detail: "more than 80 would be absurd"},
	}
}

func (damages) Perplexity() []damage {
	return []damage{
		{name: "logits three times as large", files: func(e *edition) {
			e.span("model.norm.weight", func(b []byte) {
				for i := 0; i < len(b); i += 4 {
					v := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
					binary.LittleEndian.PutUint32(b[i:], math.Float32bits(3*v))
				}
			})
		}, fails: []string{"weights", "perplexity", "kl", "decode"}, detail: "ratio"},
		{name: "above the limit", subject: func(_ *testing.T, s *verify.Subject) { s.Options.Checks.Perplexity.MaxRatio = new(0.5) },
			fails: []string{"perplexity"}, detail: "ratio"},
	}
}

func (damages) KL() []damage {
	return []damage{
		{name: "above the limit", subject: func(_ *testing.T, s *verify.Subject) { s.Options.Checks.KL.Max = new(1e-3) },
			fails: []string{"kl", "decode"}, detail: "nats"},
		{name: "above what the weights alone explain", subject: func(_ *testing.T, s *verify.Subject) {
			s.Options.Bits = 16
			s.Options.Checks.KL.AllowNoise(0.5)
			s.Options.Checks.Layers.Max, s.Options.Checks.Perplexity.MaxRatio = new(1.0), new(2.0)
		},
			fails: []string{"kl", "decode"}, detail: "nats"},
	}
}

func (damages) Decode() []damage {
	return []damage{
		{name: "single tokens stand seven positions further", files: func(e *edition) { e.graph(func(g *mnn.Graph) { shiftDecode(e.t, g) }) },
			fails: []string{"decode"}, detail: "one by one diverge"},
	}
}

func (damages) Positions() []damage {
	return []damage{
		{name: "a rotary table at a high position", files: func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, o := op(e.t, g, "/rotary/table/sin_high")
				v := o.Param.(*mnn.Blob).Float32s
				v[len(v)-32] += 0.1
			})
		}, fails: []string{"positions"}, detail: "at 4080"},
		{name: "more positions promised than the tables have", files: func(e *edition) {
			e.json(assemble.LLMConfigFile, "max_position_embeddings", 8192)
		}, fails: []string{"positions"}, detail: "up to position 8191"},
	}
}

func (damages) Activations() []damage {
	return []damage{
		{name: "too large for fp16", rebuild: "quantize: {scale: fp32}\nverify: {enabled: false}", source: largeActivations,
			fails: []string{"activations"}, detail: "/layers.1/mlp/"},
	}
}

func (damages) Golden() []damage {
	return []damage{
		{name: "a token of the manifest's output", subject: func(_ *testing.T, s *verify.Subject) {
			s.Manifest.Goldens = record(s)
			s.Manifest.Goldens[0].Output[20]++
		}, fails: []string{"golden"}, detail: "golden 0 of the manifest: output is"},
		{name: "a logit of the manifest", subject: func(_ *testing.T, s *verify.Subject) {
			s.Manifest.Goldens = record(s)
			s.Manifest.Goldens[0].TopLogits[3].Value += 0.01
		}, fails: []string{"golden"}, detail: "golden 0 of the manifest: logit of token"},
		{name: "an output recorded elsewhere", subject: func(_ *testing.T, s *verify.Subject) {
			s.Options.Goldens = []verify.Golden{{Prompt: []int32{5, 6, 7}, Output: []int32{0, 0}, Provenance: "elsewhere"}}
		}, fails: []string{"golden"}, detail: "recorded output 0 (elsewhere): token 0 of the output"},
		{name: "a token recorded elsewhere that does not exist", subject: func(_ *testing.T, s *verify.Subject) {
			s.Options.Goldens = []verify.Golden{{Prompt: []int32{5}, Output: []int32{8192}, Provenance: "elsewhere"}}
		}, fails: []string{"golden"}, detail: "token 8192 of a vocabulary of 8192"},
	}
}

// tinyPerplexity is about what tiny-qwen3 has on the two damaged windows.
const tinyPerplexity = 67

// record sets the good package's goldens, which the subjects of damaged copies lack.
func record(s *verify.Subject) []manifest.Golden {
	m, err := manifest.Open(s.Package.Dir)
	if err != nil {
		panic(err)
	}
	if len(m.Goldens) == 0 {
		panic("the good package has no goldens")
	}
	return m.Goldens
}

// damagedWindow is long enough to detect each damage, and short because there are many.
const damagedWindow = 16

// TestDamage damages a good package in every way of the table and requires that exactly the listed checks
// fail.
func TestDamage(t *testing.T) {
	all := damagesByCheck()
	for _, check := range verify.Names() {
		list := all[check]
		if testing.Short() {
			list = list[:1]
		}
		for _, d := range list {
			t.Run(check+"/"+d.name, func(t *testing.T) {
				s := d.make(t)
				res, err := verify.Run(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range res.Checks {
					if c.Failed() || c.Name == check {
						t.Logf("%s: %s", c.Name, c.Detail)
					}
				}
				if diff := cmp.Diff(d.fails, res.Failed()); diff != "" {
					t.Errorf("failing checks (-want +got):\n%s", diff)
				}
				i := slices.IndexFunc(res.Checks, func(c manifest.Check) bool { return c.Name == check })
				if !strings.Contains(res.Checks[i].Detail, d.detail) {
					t.Errorf("%s says %q, want %q in it", check, res.Checks[i].Detail, d.detail)
				}
				sealable(t, s.Manifest, res)
			})
		}
	}
}

// sealable requires that a manifest can carry any result: JSON has no NaN.
func sealable(t *testing.T, m *manifest.Manifest, res *verify.Result) {
	t.Helper()
	c := *m
	c.Checks, c.Metrics, c.Verified = res.Checks, res.Metrics, len(res.Failed()) == 0
	c.Goldens = nil
	c.Sort()
	if _, _, err := c.Seal(); err != nil {
		t.Errorf("a manifest with this result: %v", err)
	}
}

func (d *damage) make(t *testing.T) *verify.Subject {
	source := tiny
	if d.source != nil {
		source = d.source(t)
	}
	dir := goodPackage(t)
	if d.rebuild != "" {
		var err error
		if dir, err = stagetest.Export(t.Context(), t.TempDir(), source, d.rebuild); err != nil {
			t.Fatal(err)
		}
	}
	if d.files != nil {
		e := edit(t, dir)
		d.files(e)
		if !d.unsealed {
			e.seal()
		}
		dir = e.dir
	}
	s := open(t, dir, source)
	s.Manifest.Goldens = nil
	s.Options.Window = damagedWindow
	if !slices.Contains(d.fails, "positions") {
		s.Package.Config.MaxPositions = 0 // skips the most expensive check where it cannot detect anything
	}
	if testing.Short() && !slices.Contains(d.fails, "activations") {
		s.Package.Config.Precision = "high" // skips half precision likewise
	}
	if d.subject != nil {
		d.subject(t, s)
	}
	return s
}

// Every check has damages, and all damages belong to a check.
func TestEveryCheckIsDamaged(t *testing.T) {
	all := damagesByCheck()
	want := slices.Sorted(slices.Values(verify.Names()))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(all))); diff != "" {
		t.Errorf("damages (-checks +damages):\n%s", diff)
	}
	for check, list := range all {
		if len(list) == 0 {
			t.Errorf("%s has no damage", check)
		}
		for _, d := range list {
			if !slices.Contains(d.fails, check) {
				t.Errorf("%s/%s: the check itself does not fail", check, d.name)
			}
		}
	}
}

// A flipped bit in any file is detected, either when the package is opened or by the layout check.
func TestFlippedBits(t *testing.T) {
	m, err := manifest.Open(goodPackage(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		t.Run(f.Name, func(t *testing.T) {
			for _, at := range []int64{0, f.Size / 2, f.Size - 1} {
				e := edit(t, goodPackage(t))
				e.write()
				e.file(f.Name, func(b []byte) []byte {
					b[at] ^= 1
					return b
				})
				pkg, err := runtime.Open(e.dir)
				if err != nil {
					// Opening may reject it first; then the digest must differ too.
					if err := e.m.VerifyFiles(t.Context(), e.dir); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), f.Name) {
						t.Errorf("byte %d: %v", at, err)
					}
					continue
				}
				pkg.Close()
				s := open(t, e.dir, tiny)
				res, err := verify.Run(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if got := res.Failed(); !slices.Equal(got, []string{"layout"}) || !strings.Contains(res.Checks[0].Detail, f.Name) {
					t.Errorf("byte %d: %v, %s", at, got, res.Checks[0].Detail)
				}
				for _, c := range res.Checks[2:] {
					if !c.Skipped {
						t.Errorf("%s ran on bytes that are wrong", c.Name)
					}
				}
			}
		})
	}
}

// alphaOf is where the scales of a 4-bit matrix begin within its span.
func alphaOf(cols, rows int) int64 { return mnn.HeaderSize(rows, cols, 4) + int64(rows*cols/2) }

// redirect lets every reader of a tensor read another one.
func redirect(g *mnn.Graph, from, to int32) {
	for i := range g.Ops {
		for j, in := range g.Ops[i].Inputs {
			if in == from {
				g.Ops[i].Inputs[j] = to
			}
		}
	}
}

// shiftDecode adds 7 to the positions of calls of one token: 7 * (1 / tokens) in integers.
func shiftDecode(t testing.TB, g *mnn.Graph) {
	at, position := op(t, g, "/rotary/position")
	_, low := op(t, g, "/rotary/clamp_low")
	_, input := op(t, g, "position_ids")
	var ops []mnn.Op
	add := func(name string, typ mnn.OpType, p mnn.Param, in ...int32) int32 {
		g.Tensors = append(g.Tensors, name)
		out := int32(len(g.Tensors) - 1)
		ops = append(ops, mnn.Op{Name: name, Type: typ, Param: p, Inputs: in, Outputs: []int32{out}})
		return out
	}
	scalar := func(name string, v int32) int32 {
		return add(name, mnn.OpConst, &mnn.Blob{Format: mnn.NCHW, DType: mnn.DTInt32, Int32s: []int32{v}})
	}
	binaryOp := func(name string, o mnn.BinaryOp, x, y int32) int32 {
		return add(name, mnn.OpBinaryOp, &mnn.Binary{Op: o, T: mnn.DTFloat}, x, y)
	}
	one := scalar("one", 1)
	shape := add("shape", mnn.OpShape, nil, input.Outputs[0])
	tokens := add("tokens", mnn.OpGatherV2, &mnn.GatherV2{}, shape, one, scalar("zero", 0))
	shift := binaryOp("shift", mnn.BinaryMul, binaryOp("single", mnn.BinaryRealDiv, one, tokens), scalar("seven", 7))
	low.Inputs[0] = binaryOp("shifted", mnn.BinaryAdd, position.Outputs[0], shift)
	g.Ops = slices.Insert(g.Ops, at+1, ops...)
}

// largeActivations is tiny-qwen3 with one projection times 2^17 and the next one divided by as much: the same
// function, with numbers in between that no half holds.
func largeActivations(t *testing.T) string {
	return editCheckpoint(t, tiny, func(path func(string) string) {
		scaleBF16(t, path("model.safetensors"), "layers.1.mlp.up_proj", 17)
		scaleBF16(t, path("model.safetensors"), "layers.1.mlp.down_proj", -17)
	})
}

// tokenizer replaces tokenizer.mtok by that of a changed tokenizer.json.
func (e *edition) tokenizer(change func(model map[string]any)) {
	e.t.Helper()
	src, err := source.Open(e.t.Context(), source.Origin{Dir: tiny}, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	defer src.Close()
	e.file(assemble.TokenizerFile, func([]byte) []byte {
		b, err := os.ReadFile(tiny + "/tokenizer.json")
		if err != nil {
			e.t.Fatal(err)
		}
		var all map[string]any
		if err := json.Unmarshal(b, &all); err != nil {
			e.t.Fatal(err)
		}
		change(all["model"].(map[string]any))
		if b, err = json.Marshal(all); err != nil {
			e.t.Fatal(err)
		}
		tok, err := tokenizer.Load(b)
		if err != nil {
			e.t.Fatal(err)
		}
		if b, _, err = tok.MTOK(tokenizer.MTOKOptions{Special: src.Facts.Special, Stop: src.Facts.Stop, Prefix: src.Facts.Prefix}); err != nil {
			e.t.Fatal(err)
		}
		return b
	})
}

// more is a source with one additional tensor.
type more struct {
	tensor.Source
	name string
}

func (m *more) Tensors() []tensor.Info {
	return append(slices.Clone(m.Source.Tensors()), tensor.Info{Name: m.name, DType: tensor.F32, Shape: tensor.Shape{1}, Size: 4})
}

func (m *more) Open(name string) (*io.SectionReader, error) {
	if name == m.name {
		return io.NewSectionReader(strings.NewReader("\x00\x00\x00\x00"), 0, 4), nil
	}
	return m.Source.Open(name)
}
