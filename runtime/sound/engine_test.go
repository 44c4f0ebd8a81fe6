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

// TestEngines asks every installed engine for the features of all kinds of sounds of random lengths, and one of 31 s.
func TestEngines(t *testing.T) {
	venvs, err := venv.Engines(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range venvs {
		t.Run(venv.Release(dir), func(t *testing.T) {
			kinds := map[string]int{"whisper": 201, "conformer": 320, "usm": 352} // with the shortest sound
			if venv.Release(dir) == "3.5.0" {
				delete(kinds, "usm")
			}
			var questions []string
			for kind, least := range kinds {
				questions = append(questions, kind+" 496000")
				for range 40 {
					questions = append(questions, fmt.Sprintf("%s %d", kind, least+rand.IntN(30000)))
				}
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
