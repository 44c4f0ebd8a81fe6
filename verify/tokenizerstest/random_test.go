//go:build tokenizers

package tokenizerstest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

var (
	randomCount = flag.Int("random", 600, "how many random tokenizers TestRandom makes")
	shrinking   = flag.Bool("shrink", true, "make tokenizers and texts on which we differ small")
	randomSeed  = flag.Uint64("seed", 1, "the seed of the first random tokenizer; every further one has the next")
)

// randomTexts is how many texts each of them gets.
const randomTexts = 60

// workerPatience bounds the work on one tokenizer; the library has no bound itself.
const workerPatience = 20 * time.Second

// TestRandom holds random tokenizers to the library: the ids of texts, the texts of ids, at once and id by id, and which files
// are refused. The library may take what we refuse as tensor.ErrUnsupported. Differences are made small before they are shown.
func TestRandom(t *testing.T) {
	var next, same, refused, failed atomic.Int64
	var mu sync.Mutex
	reasons := map[string]int{}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			l := newLibraryWorker(t)
			defer l.stop()
			for {
				i := uint64(next.Add(1) - 1)
				if i >= uint64(*randomCount) {
					return
				}
				seed := *randomSeed + i
				s := newGenerator(seed).sample(randomTexts)
				out := compareRandom(l, s)
				switch {
				case out.difference != "":
					kind := out.kind()
					if !*shrinking {
						t.Errorf("seed %d: %s", seed, out.difference)
						continue
					}
					s = shrink(s, func(s *sample) bool { return compareRandom(l, s).kind() == kind })
					out = compareRandom(l, s)
					t.Errorf("seed %d: %s\n%s", seed, out.difference, strings.TrimSpace(s.json()))
				case out.failed:
					failed.Add(1)
				case out.refused != "":
					refused.Add(1)
					mu.Lock()
					reasons[out.refused]++
					mu.Unlock()
				default:
					same.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d tokenizers the same, %d refused, on %d the library failed", same.Load(), refused.Load(), failed.Load())
	if testing.Verbose() {
		var list []string
		for r, n := range reasons {
			list = append(list, fmt.Sprintf("%5d %s", n, r))
		}
		slices.Sort(list)
		t.Log("\n" + strings.Join(list, "\n"))
	}
}

// outcome is that of one comparison.
type outcome struct {
	// difference tells what differs, first its kind and a colon.
	difference string
	// refused is our error, if there is one.
	refused string
	// failed says that the library did not get through.
	failed bool
}

func (o outcome) kind() string {
	kind, _, _ := strings.Cut(o.difference, ":")
	return kind
}

// compareRandom holds a sample to the library.
func compareRandom(l *worker, s *sample) outcome {
	file := s.json()
	tok, err := tokenizer.Load([]byte(file))
	var a answer
	switch ok := l.ask(map[string]any{"file": file, "texts": s.texts, "ids": s.ids}, &a); {
	case !ok:
		return outcome{failed: true}
	case err != nil && a.Error == "" && (strings.Contains(err.Error(), "json: cannot unmarshal") || strings.Contains(err.Error(), " is both ")):
		// The library takes another component, without settings, for one with a setting of a wrong type, and one of two tokens with
		// the same id, another one each time.
		return outcome{refused: reason(err)}
	case err != nil && a.Error == "" && !errors.Is(err, tensor.ErrUnsupported):
		return outcome{difference: fmt.Sprintf("only we refuse: %v", err)}
	case err == nil && a.Error != "":
		return outcome{difference: fmt.Sprintf("only the library refuses: %s", a.Error)}
	case err != nil:
		return outcome{refused: reason(err)}
	}
	for i, text := range s.texts {
		r := a.Rows[i]
		if r.failed != "" {
			if !slices.ContainsFunc(knownFailures, func(known string) bool { return strings.Contains(r.failed, known) }) {
				return outcome{difference: fmt.Sprintf("the library fails: %s: %+q\nours %s", r.failed, text, spelled(tok, tok.Encode(text, false)))}
			}
			continue
		}
		if got := tok.Encode(text, false); !slices.Equal(got, r.ids) {
			return outcome{difference: fmt.Sprintf("ids: %+q\nlibrary %s\nours    %s", text, spelled(tok, r.ids), spelled(tok, got))}
		}
		if got := tok.Encode(text, true); !slices.Equal(got, r.special) {
			return outcome{difference: fmt.Sprintf("ids with special tokens: %+q\nlibrary %s\nours    %s", text, spelled(tok, r.special), spelled(tok, got))}
		}
		if d := compareDecoded(tok, r.special, [2]randomText{r.kept, r.skipped}); d != "" {
			return outcome{difference: d}
		}
	}
	for i, ids := range s.ids {
		if d := compareDecoded(tok, ids, a.Decoded[i]); d != "" {
			return outcome{difference: d}
		}
	}
	return outcome{}
}

func compareDecoded(tok *tokenizer.Tokenizer, ids []int32, want [2]randomText) string {
	for i, skip := range []bool{false, true} {
		got := tok.Decode(ids, skip)
		// The decoder Strip panics on a token that is nothing but what it strips.
		if want[i].failed == "" && got != want[i].text {
			return fmt.Sprintf("decoded, skipping special tokens %v: %s\nlibrary %+q\nours    %+q", skip, spelled(tok, ids), want[i].text, got)
		}
		var b strings.Builder
		s := tok.Stream(skip)
		for _, id := range ids {
			part := s.Next(id)
			if !utf8.ValidString(part) {
				return fmt.Sprintf("decoded in part to what is not UTF-8: %+q", part)
			}
			b.WriteString(part)
		}
		b.WriteString(s.Close())
		if b.String() != got {
			return fmt.Sprintf("decoded id by id, skipping special tokens %v: %s\nwhole %+q\nparts %+q", skip, spelled(tok, ids), got, b.String())
		}
	}
	return ""
}

// spelled are ids with their tokens.
func spelled(tok *tokenizer.Tokenizer, ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		token, _ := tok.Token(id)
		fmt.Fprintf(&b, "%d %+q, ", id, token)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// reason is an error without the texts in it, to be counted.
func reason(err error) string {
	var b strings.Builder
	for i, part := range strings.Split(err.Error(), `"`) {
		if i%2 == 0 {
			b.WriteString(part)
		} else if i == 1 {
			b.WriteString(`"` + part + `"`)
		} else {
			b.WriteString(`"…"`)
		}
	}
	text := b.String()
	return text[:min(len(text), 110)]
}

// worker is a process that answers a line of JSON with a line of JSON, started when it is asked.
type worker struct {
	t    *testing.T
	args []string // Python and the script with its arguments
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

func newLibraryWorker(t *testing.T) *worker {
	return &worker{t: t,
		args: []string{cmp.Or(os.Getenv("LLMEXPORT_TOKENIZERS_PYTHON"), filepath.Join(root, ".venv", "tokenizers", "bin", "python")),
			"randomlibrary.py"}}
}

// ask reports whether there was an answer: a process may end, and one that has no end is stopped.
func (w *worker) ask(job, answer any) bool {
	if w.cmd == nil {
		w.cmd = exec.Command(w.args[0], w.args[1:]...)
		in, err1 := w.cmd.StdinPipe()
		out, err2 := w.cmd.StdoutPipe()
		if err := errors.Join(err1, err2, w.cmd.Start()); err != nil {
			w.t.Error(err)
			w.cmd = nil
			return false
		}
		w.in, w.out = in, bufio.NewReaderSize(out, 1<<16)
	}
	process := w.cmd.Process
	timer := time.AfterFunc(workerPatience, func() { _ = process.Kill() })
	defer timer.Stop()
	_, err := io.WriteString(w.in, marshal(job))
	if err == nil {
		var line []byte
		if line, err = w.out.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, answer)
		}
	}
	if err != nil {
		w.stop()
	}
	return err == nil
}

func (w *worker) stop() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
		w.cmd = nil
	}
}

// answer is what randomlibrary.py writes.
type answer struct {
	Error   string
	Rows    []randomRow
	Decoded [][2]randomText
}

// randomRow is what the library makes of a text.
type randomRow struct {
	ids, special  []int32
	kept, skipped randomText
	failed        string
}

func (r *randomRow) UnmarshalJSON(b []byte) error {
	if b[0] == '{' {
		return json.Unmarshal(b, &struct{ Failed *string }{&r.failed})
	}
	return json.Unmarshal(b, &[]any{&r.ids, &r.special, &r.kept, &r.skipped})
}

// randomText is what the library makes of ids, or why it did not.
type randomText struct{ text, failed string }

func (r *randomText) UnmarshalJSON(b []byte) error {
	if b[0] == '{' {
		return json.Unmarshal(b, &struct{ Failed *string }{&r.failed})
	}
	return json.Unmarshal(b, &r.text)
}

// knownFailures are those of the library in the middle of a text.
var knownFailures = []string{
	"AddedVocabulary bad split",       // a token with lstrip in white space that the one before swallowed
	"retry-limit-in-match over",       // a pattern that takes exponential time
	"index out of bounds: the len is", // a Replace of the empty text before a pre-tokenizer that changes the text
}
