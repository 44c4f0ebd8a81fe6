//go:build transformers

package transformerstest

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
)

// listener is what is tried on the encoder of sound of a checkpoint of pipeline/arch/testdata; fields as those of family.
type listener struct {
	of                    string
	honours, same, shapes []object
	refuses               []refusal
}

// listeners are those of all families that hear.
var listeners = map[string]listener{
	"qwen2_audio": {
		of: "qwen2_audio",
		honours: inner("audio_config", oneOf(each("encoder_attention_heads", 1, 3, 4),
			each("activation_function", "gelu_pytorch_tanh", "relu", "silu", "quick_gelu"))),
		refuses: []refusal{
			{`audio_config.activation_function: "swish"`, object{"audio_config.activation_function": "swish"}},
			{`audio_config.activation_function: "gelu_new"`, object{"audio_config.activation_function": "gelu_new"}},
			{`audio_config.encoder_attention_heads: d_model 24 is not divisible`, object{"audio_config.encoder_attention_heads": 5}},
			{`audio_config.max_source_positions: 750`, object{"audio_config.max_source_positions": 750}},
			{`audio_config.num_mel_bins: 80`, object{"audio_config.num_mel_bins": 80}},
		},
		same: inner("audio_config", []object{
			{"scale_embedding": true}, {"attention_dropout": 0.5, "dropout": 0.5, "activation_dropout": 0.5, "encoder_layerdrop": 0.5},
			{"max_source_positions": removed},
		}),
		shapes: inner("audio_config", []object{
			{"encoder_layers": 1}, {"encoder_layers": 3}, {"encoder_ffn_dim": 20}, {"d_model": 36, "encoder_attention_heads": 3},
		}),
	},
	"qwen2_5_omni_thinker": {
		of: "qwen2_5_omni_thinker",
		honours: inner("audio_config", oneOf(each("encoder_attention_heads", 1, 2, 5), each("n_window", 5, 20, 100),
			each("activation_function", "gelu_pytorch_tanh", "relu", "silu", "quick_gelu"))),
		refuses: []refusal{
			{`audio_config.activation_function: "swish"`, object{"audio_config.activation_function": "swish"}},
			{`audio_config.encoder_attention_heads: d_model 40 is not divisible`, object{"audio_config.encoder_attention_heads": 3}},
			{`audio_config.max_source_positions: 11 are less than n_window 12`, object{"audio_config.max_source_positions": 11}},
			{`audio_config.num_mel_bins: 80`, object{"audio_config.num_mel_bins": 80}},
			{`audio_config.output_dim: 16 is not the 32`, object{"audio_config.output_dim": 16}},
		},
		same: inner("audio_config", []object{{"scale_embedding": true}, {"max_source_positions": 700}, {"dropout": 0.5, "attention_dropout": 0.5}}),
		shapes: inner("audio_config", []object{
			{"encoder_layers": 3}, {"encoder_ffn_dim": 24}, {"d_model": 24, "encoder_attention_heads": 3, "n_window": 9}, {"d_model": 6, "encoder_attention_heads": 1},
		}),
	},
	"gemma4": {
		of: "gemma4-hearing",
		honours: inner("audio_config", []object{
			{"residual_weight": 0.25}, {"residual_weight": removed, "attention_logit_cap": float("2.0")}, {"attention_logit_cap": 0.5}, {"attention_chunk_size": 6},
			{"attention_context_left": 9}, {"attention_context_left": 3, "attention_context_right": 2}, {"attention_context_right": 3},
			{"attention_chunk_size": 3, "attention_context_left": 4, "attention_context_right": 5}, {"rms_norm_eps": 0.1},
		}),
		refuses: []refusal{
			{`audio_config.hidden_act: "gelu"`, object{"audio_config.hidden_act": "gelu"}},
			{`audio_config.attention_invalid_logits_value: -1 is not supported`, object{"audio_config.attention_invalid_logits_value": float("-1.0")}},
			{`audio_config.gradient_clipping: 0.5 is not supported`, object{"audio_config.gradient_clipping": 0.5}},
			{`audio_config.num_attention_heads: hidden_size 20 is not divisible`, object{"audio_config.num_attention_heads": 3}},
			{`audio_config.subsampling_conv_channels: 64 channels`, object{"audio_config.subsampling_conv_channels": []int{64, 4}}},
		},
		same: inner("audio_config", []object{{"attention_invalid_logits_value": float("-1e30")}, {"gradient_clipping": float("1e12")}, {"initializer_range": 0.5}}),
		shapes: inner("audio_config", []object{
			{"num_hidden_layers": 1}, {"conv_kernel_size": 3}, {"conv_kernel_size": 8}, {"num_attention_heads": 4}, {"num_attention_heads": 1, "hidden_size": 8},
			{"output_proj_dims": 16}, {"subsampling_conv_channels": []int{128, 6}}, {"subsampling_conv_channels": []int{130, 3}}, {"use_clipped_linears": false},
		}),
	},
	"lfm2_audio": {
		of:      "lfm2_audio",
		honours: inner("encoder", each("xscaling", true)),
		refuses: []refusal{
			{`encoder.n_heads: d_model 24 is not divisible`, object{"encoder.n_heads": 5}},
			{`encoder.n_heads: 3 heads, but conformer.layers.0.self_attn.pos_bias_u is [2 12]`, object{"encoder.n_heads": 3}},
			{`encoder.att_context_size: 64 is not supported`, object{"encoder.att_context_size": []int{64, 0}}},
			{`encoder.conv_norm_type: "layer_norm"`, object{"encoder.conv_norm_type": "layer_norm"}},
			{`encoder.self_attention_model: "abs_pos"`, object{"encoder.self_attention_model": "abs_pos"}},
			{`encoder.subsampling: "striding"`, object{"encoder.subsampling": "striding"}},
			{`encoder.causal_downsampling: true`, object{"encoder.causal_downsampling": true}},
			{`encoder.untie_biases: false`, object{"encoder.untie_biases": false}},
			{`encoder.conv_context_size: "causal"`, object{"encoder.conv_context_size": "causal"}},
			{`encoder.conv_kernel_size: 8 is even`, object{"encoder.conv_kernel_size": 8}},
			{`encoder.subsampling_factor: 6 is not supported`, object{"encoder.subsampling_factor": 6}},
		},
		same: inner("encoder", []object{{"dropout": 0.5, "dropout_att": 0.5, "dropout_emb": 0.5}, {"pos_emb_max_len": 100}, {"feat_out": 24}}),
		shapes: inner("encoder", []object{
			{"n_layers": 1}, {"conv_kernel_size": 5}, {"subsampling_factor": 4}, {"subsampling_factor": 2}, {"ff_expansion_factor": 2}, {"subsampling_conv_channels": 8},
			{"subsampling_conv_channels": -1}, {"n_heads": 1}, {"n_heads": 3}, {"n_heads": 4}, {"d_model": 36, "n_heads": 3, "xscaling": true},
		}),
	},
}

// maxRows is how far rows may be from those of transformers, relative to the largest: what roundings make of it, and more. What a change is worth
// has to be three times as much.
const maxRows = 2e-5

// heard is what became of an encoder of sound whose config is changed; fields as those of result, in parts of the largest row.
type heard struct {
	refusal        error
	rejection      string
	changed, wrong float64
}

// hear gives a changed config to both, and clips of the recorded outputs. want are the rows without the change, or nil for new weights.
func (h *listener) hear(t *testing.T, change object, want []float32, seed int) (r heard, rows []float32) {
	t.Helper()
	base, err := filepath.Abs(filepath.Join("..", "..", "pipeline", "arch", "testdata", h.of))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(base, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if b, err = json.MarshalIndent(edited(parse(t, b), change), "", "  "); err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), b, 0o666)
	}
	weights := filepath.Join(dir, "model.safetensors")
	if err == nil && seed == 0 {
		err = os.Symlink(filepath.Join(base, "model.safetensors"), weights)
	}
	if err != nil {
		t.Fatal(err)
	}
	golden, err := stagetest.ReadSounds(filepath.Join(base, "sounds.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	j := job{Dir: dir, Base: base, Out: filepath.Join(dir, "rows")}
	for i, f := range golden.Features {
		raw, file := make([]byte, 0, 4*len(f)), filepath.Join(dir, "clip"+string(rune('0'+i)))
		for _, v := range f {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		if err := os.WriteFile(file, raw, 0o666); err != nil {
			t.Fatal(err)
		}
		j.Clips = append(j.Clips, file)
	}
	if seed != 0 {
		j.Seed = &seed
	}
	a := do(t, j)
	if r.rejection = a.Error; a.Misfit != nil {
		r.rejection = "weights do not fit: " + strings.Join(a.Misfit, ", ")
	}
	if r.rejection == "" {
		rows = readFloats(t, j.Out)
		r.changed = apart(want, rows)
	} else if _, err := os.Stat(weights); err != nil {
		if err := os.Symlink(filepath.Join(base, "model.safetensors"), weights); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ourRows(t, dir, golden.Features)
	if r.refusal = err; err == nil && r.rejection == "" {
		r.wrong = apart(rows, got)
	}
	return r, rows
}

// ourRows are those of our encoder, or why the checkpoint is refused.
func ourRows(t *testing.T, dir string, clips [][]float32) (rows []float32, refusal error) {
	t.Helper()
	src, err := source.OpenModel(t.Context(), source.Origin{Dir: dir}, nil)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	ear, err := forward.NewEar(src.Model.Ear, src.Weights, 1)
	if err != nil {
		return nil, err
	}
	for _, f := range clips {
		x, err := ear.Rows(t.Context(), f)
		if err != nil {
			return nil, err
		}
		rows = append(rows, x...)
	}
	return rows, nil
}

// apart is the largest difference relative to the largest of want, or 1 if there are more or fewer.
func apart(want, got []float32) float64 {
	if len(want) != len(got) {
		return 1
	}
	var most, diff float64
	for i, w := range want {
		most = max(most, math.Abs(float64(w)))
		if d := math.Abs(float64(got[i] - w)); !(d <= diff) {
			diff = d
		}
	}
	return diff / most
}

func (r *heard) wantEqual(t *testing.T) {
	t.Helper()
	switch {
	case r.rejection != "":
		t.Fatalf("transformers: %s", r.rejection)
	case r.refusal != nil:
		t.Fatal(r.refusal)
	case !(r.wrong <= maxRows):
		t.Errorf("rows are %.2g from those of transformers (the change is worth %.2g)", r.wrong, r.changed)
	}
}

// TestHearing changes keys of encoders of sound: their rows follow, or the keys are refused by name.
func TestHearing(t *testing.T) {
	for name, h := range listeners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := h.rows(t)
			keys := map[string]bool{} // that matter
			matters := func(change object) {
				for key, value := range change {
					if value != removed {
						keys[key] = true
					}
				}
			}
			for _, change := range h.honours {
				t.Run(text(change), func(t *testing.T) {
					r, _ := h.hear(t, change, rows, 0)
					r.wantEqual(t)
					if r.changed <= 3*maxRows {
						t.Errorf("transformers computes the same as without the change (%.2g)", r.changed)
					}
					matters(change)
				})
			}
			for _, x := range h.refuses {
				t.Run(text(x.change), func(t *testing.T) {
					r, _ := h.hear(t, x.change, rows, 0)
					if r.refusal == nil || !strings.Contains(r.refusal.Error(), x.text) {
						t.Errorf("error %v, want %s (%.2g from transformers)", r.refusal, x.text, r.wrong)
					}
				})
			}
			for _, change := range h.same {
				t.Run(text(change), func(t *testing.T) {
					r, _ := h.hear(t, change, rows, 0)
					r.wantEqual(t)
					if r.changed > maxRows {
						t.Errorf("transformers computes something else (%.2g)", r.changed)
					}
				})
			}
			for i, change := range h.shapes {
				t.Run(text(change), func(t *testing.T) {
					r, _ := h.hear(t, change, nil, i+2)
					r.wantEqual(t)
					matters(change)
				})
			}
			if t.Logf("%d keys matter", len(keys)); len(keys) < minMutations && !t.Failed() {
				t.Errorf("%d keys that matter are less than %d", len(keys), minMutations)
			}
		})
	}
}

// TestEveryHearingKey tries, one at a time, other values, null and the absence of every key that the config of an encoder of sound or its class has:
// each is refused, by either side, or the rows are alike.
func TestEveryHearingKey(t *testing.T) {
	for name, h := range listeners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(filepath.Join("..", "..", "pipeline", "arch", "testdata", h.of, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			config := parse(t, b)
			object, own := "encoder", config["encoder"]
			if own == nil {
				object, own = "audio_config", config["audio_config"]
			}
			keys := maps.Clone(own.(map[string]any))
			if class, ok := keys["model_type"].(string); ok {
				a := do(t, job{Defaults: class})
				if a.Error != "" {
					t.Fatal(a.Error)
				}
				for key, v := range parse(t, a.Keys) {
					if _, there := keys[key]; !there {
						keys[key] = v
					}
				}
			} // of LFM2-Audio transformers has no class, and the worker reads few keys: others are refused or do not matter
			rows, alike, changed, refused := h.rows(t), 0, 0, 0
			for _, key := range sortedKeys(keys) {
				if slices.Contains(untried, key) {
					continue
				}
				tries := values(keys[key])
				if _, there := own.(map[string]any)[key]; there {
					tries = append(tries, removed)
				}
				for _, v := range tries {
					change := map[string]any{object + "." + key: v}
					if h.refusesKeys(t, edited(config, change)) {
						refused++
						continue
					}
					t.Run(text(change), func(t *testing.T) {
						r, _ := h.hear(t, change, rows, 0)
						if r.refusal != nil || r.rejection != "" {
							refused++
							return
						}
						r.wantEqual(t)
						if alike++; r.changed > 3*maxRows {
							changed++
						}
					})
				}
			}
			if t.Logf("%d alike, %d of them other than before; %d refused", alike, changed, refused); changed == 0 {
				t.Error("no key has changed anything")
			}
		})
	}
}

// rows are those of transformers without a change.
func (h *listener) rows(t *testing.T) []float32 {
	t.Helper()
	r, rows := h.hear(t, nil, nil, 0)
	r.wantEqual(t)
	return rows
}

// refusesKeys reports whether a config alone is refused.
func (h *listener) refusesKeys(t *testing.T, config object) bool {
	t.Helper()
	c := &checkpoint{dir: filepath.Join("..", "..", "pipeline", "arch", "testdata", h.of), config: config}
	return c.refusesKeys(t, nil)
}

// TestHearingCovered: every checkpoint of pipeline/arch/testdata that hears is one of a model type that is tried.
func TestHearingCovered(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "pipeline", "arch", "testdata", "*", "sounds.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(file), "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		config := parse(t, b)
		name, _ := config["model_type"].(string)
		if name == "" {
			name = "lfm2_audio" // whose files do not say it
		}
		if _, ok := listeners[name]; !ok && name != "qwen2_5_omni" { // qwen2_5_omni_thinker as an object of another file
			t.Errorf("%s: %s is not tried; there are %v", file, name, sortedKeys(listeners))
		}
	}
}
