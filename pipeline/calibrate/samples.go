package calibrate

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/sealed"
)

// SamplesFile is the name of the file from which a killed [Sample] resumes.
const SamplesFile = "samples.jsonl"

// samples is the journal of drawn tokens: a sealed line for every draw of a batch, written before the next one. The seal names
// the number of the line, and everything that tokens depend on and the name of the directory may not cover.
type samples struct {
	file  *os.File // nil without a directory
	about string
	lines int
}

// drawn is a line: the tokens at a position of adjacent windows.
type drawn struct {
	Window   int     `json:"window"`
	Position int     `json:"position"`
	Tokens   []int32 `json:"tokens"`
}

// openSamples opens the journal of a directory and appends the tokens of its valid lines to the windows. Everything from the
// first invalid line on is cut off.
func openSamples(s *Sampling, windows [][]int32) (*samples, error) {
	j := &samples{about: fmt.Sprintf("%s/%s:%d:%v:", s.Name, SamplesFile, s.Seed, s.First)}
	if s.Dir == "" {
		return j, nil
	}
	path := filepath.Join(s.Dir, SamplesFile)
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	valid := 0
	for line := range bytes.Lines(text) {
		var d drawn
		if line[len(line)-1] != '\n' || sealed.Unmarshal(j.line(), line, &d) != nil || !d.appendTo(windows, s.Length) {
			break
		}
		valid += len(line)
		j.lines++
	}
	if j.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666); err != nil {
		return nil, err
	}
	return j, j.file.Truncate(int64(valid))
}

// line is the name that the next line is sealed with.
func (j *samples) line() string { return fmt.Sprint(j.about, j.lines) }

// appendTo appends the tokens to their windows; it reports whether they are the next ones.
func (d *drawn) appendTo(windows [][]int32, length int) bool {
	if d.Window < 0 || d.Window > len(windows)-len(d.Tokens) || d.Position >= length {
		return false
	}
	of := windows[d.Window : d.Window+len(d.Tokens)]
	for _, w := range of {
		if len(w) != d.Position {
			return false
		}
	}
	for i, token := range d.Tokens {
		of[i] = append(of[i], token)
	}
	return true
}

// add writes the last tokens of windows, of which the first has the given number.
func (j *samples) add(first int, windows [][]int32) error {
	if j.file == nil {
		return nil
	}
	d := drawn{Window: first, Position: len(windows[0]) - 1}
	for _, w := range windows {
		d.Tokens = append(d.Tokens, w[d.Position])
	}
	b, err := sealed.Marshal(j.line(), d)
	if err == nil {
		_, err = j.file.Write(append(b, '\n'))
	}
	j.lines++
	return err
}

func (j *samples) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
