//go:build engine

// Package enginetest compares packages that llmexport writes with the stock MNN engine, as the wheels on PyPI
// contain it. Every version that lies in .venv/mnn-<version> at the top of the repository is used; "make engine" puts
// them there. LLMEXPORT_MATRIX=full runs every combination of storage forms on both small models, which takes about
// an hour; the default is a selection.
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
	"sort"
	"strings"
	"testing"
)

// engine is a running worker around one version of the engine.
type engine struct {
	version string
	in      io.WriteCloser
	out     *bufio.Scanner
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

// engines starts a worker for every installed version, oldest first.
func engines(t testing.TB) []*engine {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("..", "..", ".venv", "mnn-*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal("no engine in .venv/mnn-<version>: run make engine")
	}
	sort.Strings(dirs)
	var list []*engine
	for _, d := range dirs {
		in, out := startWorker(t, d, "engine.py")
		list = append(list, &engine{version: strings.TrimPrefix(filepath.Base(d), "mnn-"), in: in, out: out})
	}
	return list
}

// startWorker runs a script of this folder with the Python of a virtual environment, until the test ends.
func startWorker(t testing.TB, venv string, script ...string) (io.WriteCloser, *bufio.Scanner) {
	t.Helper()
	python, err := filepath.Abs(filepath.Join(venv, "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, script...)
	cmd.Stderr = io.Discard
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<30)
	return in, s
}

func (e *engine) do(j job) (answer, error) {
	var a answer
	b, err := json.Marshal(j)
	if err != nil {
		return a, err
	}
	if _, err := e.in.Write(append(b, '\n')); err != nil {
		return a, err
	}
	if !e.out.Scan() {
		return a, fmt.Errorf("engine %s went away: %v", e.version, e.out.Err())
	}
	if err := json.Unmarshal(e.out.Bytes(), &a); err != nil {
		return a, err
	}
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
