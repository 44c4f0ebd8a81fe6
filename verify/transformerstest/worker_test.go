//go:build transformers

// Package transformerstest holds the families of pipeline/arch to transformers itself. Configs are changed key by key,
// new weights in other shapes; then either a checkpoint is rejected by name, or pipeline/reference computes the
// logits that transformers computes of the same files. "make transformers" installs what it needs into
// .venv/transformers at the top of the repository.
package transformerstest

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
	"runtime"
	"testing"
)

// worker is a Python process that has transformers loaded.
type worker struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

// job is one line of worker.py's input.
type job struct {
	Dir      string    `json:"dir,omitempty"`
	IDs      [][]int32 `json:"ids,omitempty"`
	Out      string    `json:"out,omitempty"`
	Seed     *int      `json:"seed,omitempty"`
	Defaults string    `json:"defaults,omitempty"`
	Chats    []object  `json:"chats,omitempty"`
	Clips    []string  `json:"clips,omitempty"`
	Base     string    `json:"base,omitempty"`
}

type answer struct {
	// Error is why transformers refuses a checkpoint.
	Error string `json:"error"`
	// Misfit are tensors that do not fit the config.
	Misfit []string        `json:"misfit"`
	Keys   json.RawMessage `json:"keys"`
	// Prompts are those of conversations.
	Prompts []struct {
		IDs   []int32 `json:"ids"`
		Error string  `json:"error"`
	} `json:"prompts"`
}

// workers are those that no test uses at the moment.
var workers chan *worker

func TestMain(m *testing.M) {
	n := min(runtime.GOMAXPROCS(0), 4)
	workers = make(chan *worker, n)
	var stop []func()
	for range n {
		w, end, err := start()
		if err != nil {
			fmt.Fprintln(os.Stderr, "no transformers in .venv/transformers, run make transformers:", err)
			os.Exit(1)
		}
		workers <- w
		stop = append(stop, end)
	}
	code := m.Run()
	for _, end := range stop {
		end()
	}
	os.Exit(code)
}

func start() (*worker, func(), error) {
	python, err := filepath.Abs(filepath.Join("..", "..", ".venv", "transformers", "bin", "python"))
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(python, "worker.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<26)
	return &worker{in, s}, func() { in.Close(); _ = cmd.Wait() }, nil
}

// do has a worker do a job, the next that is free.
func do(t *testing.T, j job) (a answer) {
	t.Helper()
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	w := <-workers
	defer func() { workers <- w }()
	if _, err := w.in.Write(append(b, '\n')); err != nil {
		t.Fatal(err)
	}
	if !w.out.Scan() {
		t.Fatal("the worker went away: ", w.out.Err())
	}
	if err := json.Unmarshal(w.out.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// readFloats reads a file of float32.
func readFloats(t *testing.T, path string) []float32 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}
