//go:build tokenizers

package tokenizerstest

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/internal/venv"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
)

var randomEngines = flag.Int("random-engines", 100, "how many random tokenizers TestRandomEngines makes")

// TestRandomEngines holds what is emulated of the engine to every installed one, on the random tokenizers that can be packed.
func TestRandomEngines(t *testing.T) {
	dirs, pkg := engines(t)
	for _, dir := range dirs {
		t.Run(venv.Release(dir), func(t *testing.T) {
			var next, packed, texts atomic.Int64
			var wg sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				wg.Go(func() {
					w := &worker{t: t, args: []string{filepath.Join(dir, "bin", "python"), "randomengine.py", pkg}}
					defer w.stop()
					for {
						i := uint64(next.Add(1) - 1)
						if i >= uint64(*randomEngines) {
							return
						}
						seed := *randomSeed + i
						s := newGenerator(seed).sample(randomTexts)
						s.ids = nil
						difference, n := compareEngine(w, s)
						if difference != "" && *shrinking {
							kind, _, _ := strings.Cut(difference, ":")
							s = shrink(s, func(s *sample) bool {
								d, _ := compareEngine(w, s)
								return strings.HasPrefix(d, kind+":")
							})
							difference, _ = compareEngine(w, s)
						}
						if difference != "" {
							t.Errorf("seed %d: %s\n%s", seed, difference, strings.TrimSpace(s.json()))
						} else if n > 0 {
							packed.Add(1)
							texts.Add(int64(n))
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d tokenizers are packed and the same on %d texts", packed.Load(), texts.Load())
		})
	}
}

// compareEngine tells what differs, first its kind and a colon, or how many texts are the same.
func compareEngine(w *worker, s *sample) (difference string, same int) {
	tok, err := tokenizer.Load([]byte(s.json()))
	if err != nil {
		return "", 0
	}
	file, err := pack(tok)
	if err != nil {
		if !errors.Is(err, tensor.ErrUnsupported) {
			return fmt.Sprintf("pack: %v", err), 0
		}
		return "", 0
	}
	emulated, err := engine.Open(file)
	if err != nil {
		return fmt.Sprintf("open what was packed: %v", err), 0
	}
	var texts []string
	var want [][]int32
	var sent []string
	for _, text := range s.texts {
		ids, err := emulated.TryEncode(text)
		// The Python binding ends at U+0000.
		if err == nil && !strings.Contains(text, "\x00") {
			texts, want, sent = append(texts, text), append(want, ids), append(sent, base64.StdEncoding.EncodeToString([]byte(text)))
		}
	}
	if len(texts) == 0 {
		return "", 0
	}
	var a struct {
		IDs   [][]int32
		Error string
	}
	if !w.ask(map[string]any{"mtok": base64.StdEncoding.EncodeToString(file), "texts": sent}, &a) || a.Error != "" {
		return fmt.Sprintf("no answer: %s", a.Error), 0
	}
	for i, text := range texts {
		if !slices.Equal(a.IDs[i], want[i]) {
			return fmt.Sprintf("ids: %+q\nengine   %s\nemulated %s", text, spelled(tok, a.IDs[i]), spelled(tok, want[i])), 0
		}
	}
	return "", len(texts)
}
