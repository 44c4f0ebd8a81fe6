//go:build engine

package picture_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/venv"
)

// TestPrograms asks every installed engine, and Pillow and transformers, what they compute of pictures of random shapes and of
// all files. "make pictures" installs them.
func TestPrograms(t *testing.T) {
	venvs, err := venv.Engines(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	edge := func(n int) int { return 1 + r.IntN(n) }
	ask := func(t *testing.T, venv string, questions []string) {
		python, err := filepath.Abs(filepath.Join(venv, "bin", "python"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, filepath.Join("testdata", "answers.py"))
		cmd.Stdin = strings.NewReader(strings.Join(questions, "\n"))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var answers []byte
		for line := range bytes.Lines(out) { // the engine prints a line of its own
			if bytes.Contains(line, []byte(" = ")) {
				answers = append(answers, line...)
			}
		}
		if n := check(t, answers); n != len(questions) {
			t.Errorf("%d answers to %d questions", n, len(questions))
		}
	}
	for _, dir := range venvs {
		t.Run(venv.Release(dir), func(t *testing.T) {
			var q []string
			for range 60 {
				before, after := fmt.Sprintf("%dx%d", edge(400), edge(400)), fmt.Sprintf("%dx%d", edge(500), edge(1600))
				q = append(q, "engine "+before+" "+after, fmt.Sprintf("planes %s %s %v,%v,%v %v,%v,%v", before, after,
					255*r.Float32(), 255*r.Float32(), 255*r.Float32(), r.Float32(), r.Float32(), r.Float32()))
			}
			ask(t, dir, q)
		})
	}
	t.Run("pillow", func(t *testing.T) {
		venv := filepath.Join("..", "..", ".venv", "pillow")
		if _, err := os.Stat(venv); err != nil {
			t.Skip("no Pillow in .venv/pillow: run make pictures")
		}
		var q []string
		for range 60 {
			filter := []string{"lanczos", "bilinear", "bicubic"}[r.IntN(3)]
			q = append(q, fmt.Sprintf("%s %dx%d %dx%d", filter, edge(400), edge(400), edge(500), edge(700)),
				fmt.Sprintf("fit %dx%d %d %d %d", edge(4000), edge(4000), 28+4*r.IntN(2), edge(1<<16), 1<<16+edge(1<<22)),
				fmt.Sprintf("patches %dx%d 16", 32*edge(8), 32*edge(8)))
		}
		ask(t, venv, q)
	})
}
