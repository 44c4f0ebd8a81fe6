package source_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// What a repository says about its processor decides how pixels are normalised; without it, the library's defaults do.
func TestPictures(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	third := float32(1.0 / 255 / 0.26862954)
	for _, c := range []struct {
		name    string
		files   map[string]any // nil removes one
		mean    float32        // of the first channel
		norm    float32
		wants   string // in a condition
		refused string
	}{
		{"the file of the checkpoint", nil, 0.45 * 255, float32(1.0 / 255 / 0.25), "cuts out the middle square", ""},
		{"no file", object{"preprocessor_config.json": nil}, float32(0.48145466 * 255), third, "", ""},
		{"a processor of version 5", object{"preprocessor_config.json": nil, "processor_config.json": object{"image_processor": object{
			"image_mean": []any{0.5, 0.5, 0.5}, "image_std": []any{0.25, 0.25, 0.25}, "do_pad": true,
		}}}, 127.5, float32(4.0 / 255), "pads a picture to a square", ""},
		{"no normalisation", object{"preprocessor_config.json": object{"do_normalize": false}}, 0, float32(1.0 / 255), "", ""},
		{"no scale", object{"preprocessor_config.json": object{
			"do_rescale": false, "image_mean": []any{100, 100, 100}, "image_std": []any{2, 2, 2},
		}}, 100, 0.5, "", ""},
		{"two channels", object{"preprocessor_config.json": object{"image_mean": []any{0.5, 0.5}}}, 0, 0, "", "preprocessor_config.json: image_mean [0.5 0.5]"},
		{"nothing to divide by", object{"preprocessor_config.json": object{"image_std": []any{0.5, 0, 0.5}}}, 0, 0, "", "image_std [0.5 0 0.5]"},
		{"a word for a number", object{"preprocessor_config.json": object{"image_mean": "half"}}, 0, 0, "", "preprocessor_config.json: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			src, err := openSeeing(t, "llava", c.files)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("%v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p := src.Pictures
			if diff := cmp.Diff([]float32{c.mean, c.norm}, []float32{p.Mean[0], p.Norm[0]}); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if all := strings.Join(p.Conditions, "\n"); !strings.Contains(all, c.wants) || c.wants == "" && all != "" {
				t.Errorf("conditions %q", all)
			}
			if p.Pad != 320 || p.Start != -1 || p.End != -1 {
				t.Errorf("tokens %d, %d, %d", p.Pad, p.Start, p.End)
			}
		})
	}
}

// What the library makes of the size of a picture is a condition, if the tower takes any.
func TestPicturePixels(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	for name, c := range map[string]struct {
		file any
		want string
	}{
		"no file":     {nil, "its size; the engine does not: pass height and width"},
		"old keys":    {object{"min_pixels": 784, "max_pixels": 100000}, "if it has 784 to 100000 pixels"},
		"new keys":    {object{"size": object{"shortest_edge": 3136, "longest_edge": 12845056}}, "if it has 3136 to 12845056 pixels"},
		"both":        {object{"min_pixels": 784, "size": object{"shortest_edge": 3136, "longest_edge": 12845056}}, "if it has 784 to 12845056 pixels"},
		"another one": {object{"size": 224}, "its size; the engine does not: pass height and width"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, err := openSeeing(t, "qwen2_vl-tied", object{"preprocessor_config.json": c.file})
			if err != nil {
				t.Fatal(err)
			}
			p := src.Pictures
			if len(p.Conditions) != 1 || !strings.Contains(p.Conditions[0], c.want) {
				t.Errorf("%q, want %q", p.Conditions, c.want)
			}
			if p.Pad != 322 || p.Start != 320 || p.End != 321 {
				t.Errorf("tokens %d, %d, %d", p.Pad, p.Start, p.End)
			}
		})
	}
	src, err := openSeeing(t, "glm_ocr-tied", object{"preprocessor_config.json": object{"size": object{"shortest_edge": 12545, "longest_edge": 9633793}}})
	if err != nil {
		t.Fatal(err)
	}
	if c := src.Pictures.Conditions; len(c) != 1 || !strings.Contains(c[0], "if it has 6273 to 4816896 pixels") {
		t.Errorf("a library that counts pixels twice: %q", c)
	}
}

// The library of Gemma 4 makes pictures as large as a number of rows allows, of which the engine has 280, and gives the tower plain pixels.
func TestFilledPictures(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	for name, c := range map[string]struct {
		file  any
		most  int
		wants string
	}{
		"no file":  {nil, 645120, "as large as 280 tokens allow; the engine does not: pass such a height and width"},
		"its file": {object{"do_normalize": false, "image_mean": []any{0.5, 0.5, 0.5}, "max_soft_tokens": 70}, 161280, "as large as 70 tokens allow"},
		"more rows": {object{"max_soft_tokens": 1120}, 645120,
			"as large as 1120 tokens allow; the engine does not: pass such a height and width; the engine allows 280"},
	} {
		src, err := openSeeing(t, "gemma4", object{"preprocessor_config.json": c.file})
		if err != nil {
			t.Fatal(err)
		}
		p := src.Pictures
		if p.MostPixels != c.most || len(p.Conditions) != 1 || !strings.HasSuffix(p.Conditions[0], c.wants) && !strings.Contains(p.Conditions[0], c.wants+";") {
			t.Errorf("%s: %d pixels, %q", name, p.MostPixels, p.Conditions)
		}
		if p.Pad != 320 || p.Start != 321 || p.End != 322 {
			t.Errorf("tokens %d, %d, %d", p.Pad, p.Start, p.End)
		}
	}
	for _, bad := range []object{
		{"max_soft_tokens": 0}, {"max_soft_tokens": 1 << 40}, {"do_rescale": false}, {"rescale_factor": 0.5},
		{"do_normalize": true, "image_mean": []any{0.5, 0.5, 0.5}},
	} {
		if _, err := openSeeing(t, "gemma4", object{"preprocessor_config.json": bad}); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// A tower of slices has words for them, and engines have the rest built in.
func TestSlices(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	src, err := openSeeing(t, "minicpmv", object{"preprocessor_config.json": object{"norm_mean": []any{0.25, 0.5, 0.5}, "norm_std": []any{0.5, 0.25, 0.5}}})
	if err != nil {
		t.Fatal(err)
	}
	p := src.Pictures
	if p.Pad != 320 || p.Start != 321 || p.End != 322 || p.Slice != ([2]int32{323, 324}) || p.Number != ([2]int32{325, 326}) ||
		p.Mean != ([3]float32{63.75, 127.5, 127.5}) || p.Norm[1] != 2*p.Norm[0] || len(p.Conditions) != 1 ||
		!strings.Contains(p.Conditions[0], "always makes a slice") {
		t.Errorf("%+v", p)
	}
	for _, bad := range []object{
		{"max_slice_nums": 4}, {"scale_resolution": 336}, {"image_feature_size": 96}, {"use_image_id": false}, {"slice_mode": false}, {"norm_mean": []any{0.5}},
	} {
		if _, err := openSeeing(t, "minicpmv", object{"preprocessor_config.json": bad}); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	for _, word := range []string{"<unk>", "<slice>", "</image_id>"} {
		b, err := os.ReadFile(filepath.Join("..", "arch", "testdata", "minicpmv", "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		tokenizer := object{}
		if err := json.Unmarshal(bytes.Replace(b, []byte(`"content": "`+word+`"`), []byte(`"content": "<other>"`), 1), &tokenizer); err != nil {
			t.Fatal(err)
		}
		_, err = openSeeing(t, "minicpmv", object{"tokenizer.json": tokenizer})
		if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), strconv.Quote(word)) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// For some towers the limits are numbers of rows, which packages have as pixels.
func TestPictureRows(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	for name, c := range map[string]struct {
		file        any
		least, most int
		cut         bool
		wants       string
	}{
		"no file": {nil, 65536, 262144, true, "if it has 65536 to 262144 pixels"},
		"one view": {object{"do_image_splitting": false, "min_image_tokens": 4, "max_image_tokens": 100, "do_pad": true},
			4096, 102400, false, "if it has 4096 to 102400 pixels"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, err := openSeeing(t, "lfm2_vl", object{"preprocessor_config.json": c.file})
			if err != nil {
				t.Fatal(err)
			}
			p := src.Pictures
			all := strings.Join(p.Conditions, "\n")
			if p.LeastPixels != c.least || p.MostPixels != c.most || strings.Contains(all, "into up to 10 tiles") != c.cut || !strings.Contains(all, c.wants) ||
				strings.Contains(all, "square") {
				t.Errorf("%d to %d pixels, %q", p.LeastPixels, p.MostPixels, all)
			}
		})
	}
	for _, bad := range []object{{"min_image_tokens": 0}, {"max_image_tokens": 63}, {"max_image_tokens": 1 << 40}} {
		if _, err := openSeeing(t, "lfm2_vl", object{"preprocessor_config.json": bad}); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// The filter is that of the file, bicubic by default, and 0 if this program does not have it.
func TestPictureFilter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file map[string]any
		want picture.Filter
	}{
		{nil, picture.Bicubic}, {map[string]any{}, picture.Bicubic}, {map[string]any{"resample": 2}, picture.Bilinear},
		{map[string]any{"resample": 1}, picture.Lanczos}, {map[string]any{"resample": 4}, 0},
	} {
		files := map[string]any{"preprocessor_config.json": nil}
		if c.file != nil {
			files["preprocessor_config.json"] = c.file
		}
		src, err := openSeeing(t, "llava", files)
		if err != nil || src.Pictures.Filter != c.want {
			t.Errorf("%v: %+v, %v, want %d", c.file, src, err, c.want)
		}
	}
}

// The tokens around a picture are those of the library's processor, unless the tokenizer names others, and must exist.
func TestPictureMarks(t *testing.T) {
	t.Parallel()
	src, err := openSeeing(t, "internvl", nil)
	if err != nil || src.Pictures.Start != 321 || src.Pictures.End != 322 {
		t.Fatalf("%+v, %v", src, err)
	}
	src, err = openSeeing(t, "internvl", map[string]any{"tokenizer_config.json": map[string]any{"start_image_token": "<image>"}})
	if err != nil || src.Pictures.Start != 320 {
		t.Fatalf("%+v, %v", src, err)
	}
	_, err = openSeeing(t, "internvl", map[string]any{"tokenizer_config.json": map[string]any{"end_image_token": "<nothing>"}})
	if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), `"<nothing>"`) {
		t.Error(err)
	}
}

// A tower of tiles reads how large pictures become, and needs a token for every tile.
func TestTiles(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	open := func(file object) (*source.Source, error) {
		files := object{"preprocessor_config.json": file}
		return openSeeing(t, "smolvlm", files)
	}
	for _, c := range []struct {
		file object
		most int
		says string
	}{
		{object{"size": object{"longest_edge": 96}}, 96, "longer edge of a picture 96 pixels and both whole tiles; the engine does not: " +
			"pass such a height and width, for a picture of 3 to 4 96 and 96"},
		{object{"do_pad": true, "size": object{"longest_edge": 40}, "max_image_size": object{"longest_edge": 32}}, 64, "40 pixels"},
		{object{"size": object{"longest_edge": 64}, "do_image_splitting": false}, 64, "one view of a picture"},
		{object{"size": object{"height": 32, "width": 32}}, 0, `no token "<row_1_col_4>"`},
		{object{"size": object{"longest_edge": 97}}, 0, `no token "<row_1_col_4>"`},
		{object{"size": object{"longest_edge": 0}}, 0, "size 0 is not between"},
		{object{"size": object{"longest_edge": 96}, "max_image_size": object{"longest_edge": 64}}, 0, "max_image_size 64 is not image_size 32"},
	} {
		src, err := open(c.file)
		if c.most == 0 {
			if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: %v, want %s", c.file, err, c.says)
			}
			continue
		}
		if err != nil {
			t.Fatal(c.file, err)
		}
		p := src.Pictures
		all := strings.Join(p.Conditions, "; ")
		if p.Most != c.most || p.Whole != 322 || p.Filter != picture.Lanczos || !strings.Contains(all, c.says) || strings.Contains(all, "square") {
			t.Errorf("%v: %+v", c.file, p)
		}
	}
}

// What the tokenizer puts before a text comes from the template instead, unless the template writes it already.
func TestPictureOpening(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"{% for m in messages %}{{ m['content'] }}{% endfor %}":       `{{ '<s>' }}{% for m in messages %}{{ m['content'] }}{% endfor %}`,
		"<s>{% for m in messages %}{{ m['content'] }}{% endfor %}":    `<s>{% for m in messages %}{{ m['content'] }}{% endfor %}`,
		"{{ bos_token }}{% for m in messages %}{{ m.x }}{% endfor %}": `{{ bos_token }}{% for m in messages %}{{ m.x }}{% endfor %}`,
	} {
		src, err := openSeeing(t, "llava", map[string]any{
			"tokenizer_config.json": map[string]any{"bos_token": "<s>", "eos_token": "</s>", "chat_template": template},
			"tokenizer.json": map[string]any{"post_processor": map[string]any{
				"type": "TemplateProcessing", "pair": []any{},
				"single": []any{
					map[string]any{"SpecialToken": map[string]any{"id": "<s>", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}},
				},
				"special_tokens": map[string]any{"<s>": map[string]any{"id": "<s>", "ids": []any{1}, "tokens": []any{"<s>"}}},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if f := src.Facts; len(f.Prefix) != 0 || f.Opening != "<s>" || f.ChatTemplate != want {
			t.Errorf("prefix %v, opening %q, template %q, want %q", f.Prefix, f.Opening, f.ChatTemplate, want)
		}
	}
}

// openSeeing opens a copy of a checkpoint with keys of JSON files changed, files made, or with nil removed.
func openSeeing(t *testing.T, name string, files map[string]any) (*source.Source, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "arch", "testdata", name))); err != nil {
		t.Fatal(err)
	}
	for name, change := range files {
		path := filepath.Join(dir, name)
		if change == nil {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		content := map[string]any{}
		if b, err := os.ReadFile(path); err == nil && name != "preprocessor_config.json" {
			if err := json.Unmarshal(b, &content); err != nil {
				t.Fatal(err)
			}
		}
		maps.Copy(content, change.(map[string]any))
		b, err := json.Marshal(content)
		if err == nil {
			err = os.WriteFile(path, b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
	if err == nil {
		t.Cleanup(src.Close)
	}
	return src, err
}

// A tower whose library has no token for pictures takes the first id without one, if the embedding has a row for it.
func TestPictureWithoutToken(t *testing.T) {
	t.Parallel()
	src, err := openSeeing(t, "llava_qwen2", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := src.Pictures
	if _, ok := src.Tokenizer.Token(p.Pad); ok || int(p.Pad) != src.Tokenizer.VocabSize() ||
		p.Start != -1 || p.Mean != [3]float32{} || p.Norm != [3]float32{1. / 255, 1. / 255, 1. / 255} {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(strings.Join(p.Conditions, "\n"), "black square") {
		t.Errorf("conditions %q", p.Conditions)
	}
	if src, err = openSeeing(t, "llava_qwen2-square", nil); err != nil || len(src.Pictures.Conditions) != 0 {
		t.Errorf("%v, %+v", err, src)
	}
	tokenizer := map[string]any{}
	b, err := os.ReadFile(filepath.Join("..", "arch", "testdata", "llava_qwen2", "tokenizer.json"))
	if err == nil {
		err = json.Unmarshal(b, &tokenizer)
	}
	if err != nil {
		t.Fatal(err)
	}
	added := tokenizer["added_tokens"].([]any)
	for i := range 4 { // the rows of the embedding that no token has
		added = append(added, map[string]any{
			"id": 320 + i, "content": "<" + string(rune('A'+i)) + ">", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true,
		})
	}
	_, err = openSeeing(t, "llava_qwen2", map[string]any{"tokenizer.json": map[string]any{"added_tokens": added}})
	if err == nil || !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "none is left to stand for pictures") {
		t.Errorf("without a row that is left: %v", err)
	}
}
