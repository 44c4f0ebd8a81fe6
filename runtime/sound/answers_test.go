package sound_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/sound"
)

// TestAnswers compares this package with what MNN answered: testdata/answers.py explains the questions.
func TestAnswers(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "answers.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if n := check(t, data); n < 12 {
		t.Errorf("only %d answers", n)
	}
}

// check compares lines of a question and an answer with this package and returns their number.
func check(t *testing.T, lines []byte) (n int) {
	s := bufio.NewScanner(bytes.NewReader(lines))
	for s.Scan() {
		question, want, ok := strings.Cut(s.Text(), " = ")
		if !ok {
			t.Fatalf("a line without an answer: %s", question)
		}
		n++
		t.Run(question, func(t *testing.T) {
			words := strings.Fields(question)
			got := ""
			switch words[0] {
			case "whisper", "conformer", "usm":
				count, err := strconv.Atoi(words[1])
				if err != nil {
					t.Fatal(err)
				}
				features, err := sound.Features(words[0], wave(count))
				if err != nil {
					t.Fatal(err)
				}
				got = digest(features)
			case "load":
				samples, err := sound.Open(filepath.Join("testdata", filepath.FromSlash(words[1])))
				if err != nil {
					t.Fatal(err)
				}
				got = fmt.Sprintf("%d %s", len(samples), digest(samples))
			}
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	return n
}

// wave is the sound of answers.py.
func wave(count int) []float32 {
	w := make([]float32, count)
	for i := range w {
		n := uint32(i)
		noise := (n*2654435761 + n*n*97) >> 20
		tone := uint32(uint64(i)*uint64(50+i/400)) & 0x1fff * 3
		w[i] = float32(int(noise)+int(tone)-14000) / 32768
	}
	return w
}

func digest(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
