package arch

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// multimodalCheckpoint makes a checkpoint of a larger model out of a text model: its config moves under text_config, its tensors get
// another prefix, and there are a vision tower and a projector.
func multimodalCheckpoint(t *testing.T, ck checkpoint, outer map[string]any, textType, model, head string) ([]byte, []tensor.Info) {
	t.Helper()
	var text map[string]any
	if err := json.Unmarshal(ck.config, &text); err != nil {
		t.Fatal(err)
	}
	delete(text, "architectures")
	file := map[string]any{"vision_config": map[string]any{"depth": 2}, "image_token_id": 7}
	if textType == "" {
		for k, v := range text {
			file[k] = v
		}
	} else {
		text["model_type"] = textType
		if v, ok := text["tie_word_embeddings"]; ok {
			delete(text, "tie_word_embeddings")
			file["tie_word_embeddings"] = v
		}
		file["text_config"] = text
	}
	for k, v := range outer {
		file[k] = v
	}
	config, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	infos := []tensor.Info{
		{Name: "vision_tower.blocks.0.weight", DType: tensor.BF16, Shape: tensor.Shape{4, 4}},
		{Name: "model.visual.blocks.0.weight", DType: tensor.F64, Shape: tensor.Shape{4, 4}},
		{Name: "multi_modal_projector.linear.weight", DType: tensor.BF16, Shape: tensor.Shape{4, 4}},
	}
	for _, info := range ck.tensors {
		info.Name = renamed(info.Name, model, head)
		infos = append(infos, info)
	}
	return config, infos
}

func renamed(name, model, head string) string {
	if rest, ok := strings.CutPrefix(name, "model."); ok {
		return model + rest
	}
	return strings.Replace(name, "lm_head", head, 1)
}

func TestMultimodal(t *testing.T) {
	type object = map[string]any
	arch := func(modelType, architecture string) object {
		return object{"model_type": modelType, "architectures": []any{architecture}}
	}
	const outside, inside = "language_model.model.", "model.language_model."
	for _, tt := range []struct {
		base        string
		outer       object
		text        string
		model, head string
	}{
		{"mistral", arch("mistral3", "Mistral3ForConditionalGeneration"), "mistral", outside, "language_model.lm_head"},
		{"ministral", arch("mistral3", "Mistral3ForConditionalGeneration"), "ministral", inside, "lm_head"},
		{"llama4_text", arch("llama4", "Llama4ForConditionalGeneration"), "llama4_text", outside, "language_model.lm_head"},
	} {
		t.Run(tt.text+" "+tt.base, func(t *testing.T) {
			ck := loadCheckpoint(t, "testdata/"+tt.base)
			alone, err := describe(ck.config, ck.tensors, Options{})
			if err != nil {
				t.Fatal(err)
			}
			config, infos := multimodalCheckpoint(t, ck, tt.outer, tt.text, tt.model, tt.head)
			d, err := describe(config, infos, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(summary(alone), summary(d)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			want := []string{"left out: projector of images, 1 tensors", "left out: vision tower, 2 tensors"}
			if diff := cmp.Diff(want, d.Notes); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			var names, all []string
			alone.weights(func(w Weight) { names = append(names, renamed(w.Tensor, tt.model, tt.head)) })
			d.weights(func(w Weight) { all = append(all, w.Tensor) })
			for i := range names {
				if all[i] != names[i] && !strings.HasSuffix(names[i], ".ones") {
					t.Errorf("%s, want %s", all[i], names[i])
				}
			}
		})
	}

	gemma := loadCheckpoint(t, "testdata/gemma3")
	for _, tt := range []struct {
		name   string
		change func(file object)
		kind   error
		want   string // after "config.json: "
	}{
		{"no text", func(f object) { delete(f, "text_config") }, tensor.ErrCorrupt, `text_config: missing`},
		{"another text", func(f object) { f["text_config"].(object)["model_type"] = "llama" }, tensor.ErrUnsupported,
			`text_config.model_type: "llama" is not supported (known: "gemma3_text")`},
		{"unknown key outside", func(f object) { f["clip_qkv"] = true }, tensor.ErrUnsupported, `clip_qkv: unknown to family gemma3`},
		{"unknown key inside", func(f object) { f["text_config"].(object)["clip_qkv"] = 2 }, tensor.ErrUnsupported, `text_config.clip_qkv: unknown to family gemma3`},
		{"a window of 0", func(f object) { f["text_config"].(object)["sliding_window"] = 0 }, tensor.ErrCorrupt,
			`text_config.sliding_window: 0 is not a positive number`},
		{"rope within rope", func(f object) {
			f["text_config"].(object)["rope_parameters"].(object)["sliding_attention"].(object)["factor"] = 2
		}, tensor.ErrUnsupported, `text_config.rope_parameters.sliding_attention.factor: unknown key`},
		{"tied and not", func(f object) { f["text_config"].(object)["tie_word_embeddings"] = false }, tensor.ErrCorrupt,
			`tie_word_embeddings: true contradicts the false of text_config`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var file object
			if err := json.Unmarshal(gemma.config, &file); err != nil {
				t.Fatal(err)
			}
			tt.change(file)
			changed, err := json.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, changed, gemma.tensors, Options{}, tt.kind, "config.json: "+tt.want)
		})
	}
	t.Run("what published files leave out", func(t *testing.T) {
		infos := gemma.tensors
		config := edit(t, gemma.config, object{
			"tie_word_embeddings": removed, "text_config.tie_word_embeddings": removed, "text_config.max_position_embeddings": removed,
		})
		d, err := describe(config, infos, Options{})
		if err != nil || !d.Tied || d.MaxPositions != 131072 {
			t.Errorf("%v %v", d, err)
		}
		d, err = describe(config, append(infos, tensor.Info{Name: "language_model.lm_head.weight", DType: tensor.BF16, Shape: tensor.Shape{323, 32}}), Options{})
		if err != nil || d.Tied {
			t.Errorf("a head is there: %v", err)
		}
	})
	t.Run("ignored", func(t *testing.T) {
		config, infos := edit(t, gemma.config, object{"clip_qkv": true}), gemma.tensors
		if _, err := describe(config, infos, Options{IgnoreConfig: []string{"clip_qkv"}}); err != nil {
			t.Error(err)
		}
		wantError(t, config, infos, Options{IgnoreConfig: []string{"clip_qkv", "text_config.hidden_size"}}, nil,
			`config.json: text_config.hidden_size: cannot be ignored: the value is accepted`)
	})
}
