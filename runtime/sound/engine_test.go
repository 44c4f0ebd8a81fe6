//go:build engine

package sound_test

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

// TestEngines asks every installed engine for the features of both kinds of sounds of random lengths, and one of 31 s.
func TestEngines(t *testing.T) {
	venvs, err := venv.Engines(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range venvs {
		t.Run(venv.Release(dir), func(t *testing.T) {
			questions := []string{"whisper 496000", "conformer 496000"}
			for range 40 {
				n := rand.IntN(30000)
				questions = append(questions, fmt.Sprintf("whisper %d", 201+n), fmt.Sprintf("conformer %d", 320+n))
			}
			python, err := filepath.Abs(filepath.Join(dir, "bin", "python"))
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
		})
	}
}
