//go:build transformers

package transformerstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
)

// TestPackages: 16-bit packages of checkpoints of other dimensions, executed by our runtime, give the logits of transformers. They are
// refused for engines that cannot run the family.
func TestPackages(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family, c *checkpoint) {
		for i, change := range f.shapes {
			t.Run(text(change), func(t *testing.T) {
				r := c.run(t, change, i+2)
				r.wantEqual(t)
				ids := c.within(edited(c.config, change))
				want := readFloats(t, filepath.Join(r.dir, "logits"))
				limit := r.bound
				if f.packages != (bound{}) {
					limit = f.packages
				}
				for _, engine := range []string{"3.5", "3.6"} {
					got, err := packaged(t, r.dir, engine, ids)
					if engine < f.since {
						if err == nil || !strings.Contains(err.Error(), "is too old for this checkpoint") {
							t.Errorf("engine %s is not refused: %v", engine, err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					if mean, worst := divergence(want, got, len(want)/tokens(ids)); !(mean <= limit.mean && worst <= limit.worst) {
						t.Errorf("engine %s: %.2g nats from transformers, %.2g at the worst position", engine, mean, worst)
					}
				}
			})
		}
	})
}

// packaged exports a checkpoint in 16 bits for an engine, executes the package and returns the logits of all ids, the last of
// them one by one; or why it cannot be exported.
func packaged(t *testing.T, dir, engine string, ids [][]int32) (logits []float32, err error) {
	t.Helper()
	checkpoints := filepath.Join("..", "..", "pipeline", "arch", "testdata")
	from := filepath.Join(checkpoints, "llama")
	// A model that sees or hears needs a tokenizer with the tokens of pictures or clips.
	if b, err := os.ReadFile(filepath.Join(dir, "config.json")); err != nil {
		t.Fatal(err)
	} else if seeing := filepath.Join(checkpoints, parse(t, b)["model_type"].(string)); exists(filepath.Join(seeing, "pictures.safetensors")) ||
		exists(filepath.Join(seeing, "sounds.safetensors")) {
		from = seeing
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// One that reads tiles needs their number, for which the tokenizer has words.
	if b, err := os.ReadFile(filepath.Join(from, "preprocessor_config.json")); err == nil && bytes.Contains(b, []byte("max_image_size")) {
		if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	pkg, err := stagetest.Export(t.Context(), t.TempDir(), dir,
		fmt.Sprintf("target: {engine: %q}\nquantize: {bits: 16}\nverify: {enabled: false}", engine))
	if err != nil {
		return nil, err
	}
	p, err := runtime.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Threads: 1, CacheBytes: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range ids {
		s.Reset()
		prompt := len(list) * 3 / 4
		l, err := s.Forward(t.Context(), list[:prompt])
		if err != nil {
			t.Fatal(err)
		}
		logits = append(logits, l...)
		for _, id := range list[prompt:] {
			if l, err = s.Decode(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			logits = append(logits, l...)
		}
	}
	return logits, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
