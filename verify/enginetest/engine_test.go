//go:build engine

// Package enginetest compares packages that llmexport writes with the stock MNN engine, as the wheels on PyPI
// contain it. Every version that lies in .venv/mnn-<version> at the top of the repository is used, or those of them that
// LLMEXPORT_ENGINES names; "make engine" puts them there. LLMEXPORT_MATRIX=full runs every combination of storage forms
// on both small models, which takes about an hour; the default is a selection.
package enginetest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/internal/venv"
)

// engine is one version of the engine. As many tests as there are may ask it at once.
type engine struct {
	version, dir string

	mu   sync.Mutex
	idle []*worker // started and without a job
}

// worker is a running script, which answers a line with a line.
type worker struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

// job is one line of engine.py's input.
type job struct {
	Package string         `json:"package"`
	Config  map[string]any `json:"config,omitempty"`
	Script  []any          `json:"script,omitempty"` // ids, nil, or a pictured text
	Out     string         `json:"out,omitempty"`
	Texts   []string       `json:"texts,omitempty"`
	Bytes   [][]byte       `json:"bytes,omitempty"`
	Decode  int            `json:"decode,omitempty"`
	Embed   []string       `json:"embed,omitempty"`
	// Of a reranker.
	Reranker  string   `json:"reranker,omitempty"`
	Query     string   `json:"query,omitempty"`
	Instruct  string   `json:"instruct,omitempty"`
	Documents []string `json:"documents,omitempty"`
	// Of a tower that is timed.
	Time   int         `json:"time,omitempty"`
	Images []imageData `json:"images,omitempty"`
}

type answer struct {
	Error string    `json:"error"`
	Rows  int       `json:"rows"`
	IDs   [][]int32 `json:"ids"`
	// Prints is nil where the engine prints no UTF-8.
	Prints  []*string   `json:"prints"`
	Vectors [][]float32 `json:"vectors"`
	// By the clock, and of all cores.
	Seconds []float64 `json:"seconds"`
	Cores   []float64 `json:"cores"`
}

// installed are the engines, oldest first. All tests share their workers, as Python takes a second to start.
var installed = sync.OnceValues(func() ([]*engine, error) {
	dirs, err := venv.Engines(filepath.Join("..", ".."))
	var list []*engine
	for _, d := range dirs {
		list = append(list, &engine{version: venv.Release(d), dir: d})
	}
	return list, err
})

func engines(t testing.TB) []*engine {
	t.Helper()
	list, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// startWorker runs a script of this folder with the Python of a virtual environment. It ends with its input, as this process does.
func startWorker(venv string, script ...string) (*worker, error) {
	python, err := filepath.Abs(filepath.Join(venv, "bin", "python"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(python, script...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<30)
	return &worker{in, s}, cmd.Start()
}

// ask has the worker answer a question.
func (w *worker) ask(question, answer any) error {
	b, err := json.Marshal(question)
	if err != nil {
		return err
	}
	if _, err := w.in.Write(append(b, '\n')); err != nil {
		return err
	}
	if !w.out.Scan() {
		return fmt.Errorf("the worker went away: %v", w.out.Err())
	}
	return json.Unmarshal(w.out.Bytes(), answer)
}

// take returns a worker without a job, a new one if all have one.
func (e *engine) take() (*worker, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := len(e.idle) - 1; last >= 0 {
		w := e.idle[last]
		e.idle = e.idle[:last]
		return w, nil
	}
	return startWorker(e.dir, "engine.py")
}

func (e *engine) do(j job) (answer, error) {
	var a answer
	w, err := e.take()
	if err == nil {
		err = w.ask(j, &a)
	}
	if err != nil {
		return a, fmt.Errorf("engine %s: %w", e.version, err)
	}
	e.mu.Lock()
	e.idle = append(e.idle, w)
	e.mu.Unlock()
	if a.Error != "" {
		return a, fmt.Errorf("engine %s: %s", e.version, a.Error)
	}
	return a, nil
}

// logits runs windows, the last tokens of each one by one, and returns [positions, vocab] of all of them.
func (e *engine) logits(t *testing.T, pkg string, config map[string]any, windows [][]int32, decode int) []float32 {
	t.Helper()
	var script [][]int32
	for _, w := range windows {
		script = append(append(script, nil), calls(w, len(w)-decode)...)
	}
	return e.run(t, pkg, config, script)
}

// calls feeds a window: so many tokens at once, and the others one by one.
func calls(w []int32, prompt int) [][]int32 {
	list := [][]int32{w[:prompt]}
	for i := range w[prompt:] {
		list = append(list, w[prompt+i:prompt+i+1])
	}
	return list
}

// run feeds a script to a fresh engine and returns the logits of all calls; nil starts a new conversation.
func (e *engine) run(t *testing.T, pkg string, config map[string]any, script [][]int32) []float32 {
	t.Helper()
	out := filepath.Join(t.TempDir(), "logits")
	calls := make([]any, len(script))
	for i, ids := range script {
		if ids != nil {
			calls[i] = ids
		}
	}
	if _, err := e.do(job{Package: pkg, Config: config, Script: calls, Out: out}); err != nil {
		t.Fatal(err)
	}
	return readFloats(t, out)
}

// readFloats reads a file of little endian floats.
func readFloats(t *testing.T, out string) []float32 {
	t.Helper()
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// divergence is the mean KL(want || got) over rows of vocab logits, and the largest difference.
func divergence(t *testing.T, want, got []float32, vocab int) (kl, diff float64) {
	t.Helper()
	if len(want) != len(got) || len(want) == 0 {
		t.Fatalf("%d logits, want %d", len(got), len(want))
	}
	rows := len(want) / vocab
	for r := range rows {
		a, b := want[r*vocab:(r+1)*vocab], got[r*vocab:(r+1)*vocab]
		na, nb := logSumExp(a), logSumExp(b)
		for i := range a {
			lp := float64(a[i]) - na
			kl += math.Exp(lp) * (lp - float64(b[i]) + nb)
			diff = max(diff, math.Abs(float64(a[i])-float64(b[i])))
		}
	}
	return kl / float64(rows), diff
}

func logSumExp(x []float32) float64 {
	m := math.Inf(-1)
	for _, v := range x {
		m = max(m, float64(v))
	}
	s := 0.0
	for _, v := range x {
		s += math.Exp(float64(v) - m)
	}
	return m + math.Log(s)
}
