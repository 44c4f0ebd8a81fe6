package calibrate

import (
	"fmt"
	"path/filepath"
)

// SamplesFile is the name of the file from which a killed [Sample] resumes.
const SamplesFile = "samples.jsonl"

// samples is the journal of drawn tokens: a line for every draw of a batch, written before the next one. Its name contains
// everything that tokens depend on and the name of the directory may not cover.
type samples struct{ *journal } // nil without a directory

// drawn is a line: the tokens at a position of adjacent windows.
type drawn struct {
	Window   int     `json:"window"`
	Position int     `json:"position"`
	Tokens   []int32 `json:"tokens"`
}

// openSamples opens the journal of a directory and appends the tokens of its valid lines to the windows. Everything from the
// first invalid line on is cut off.
func openSamples(s *Sampling, windows [][]int32) (samples, error) {
	if s.Dir == "" {
		return samples{}, nil
	}
	name := fmt.Sprintf("%s/%s:%d:%v", s.Name, SamplesFile, s.Seed, s.First)
	j, err := readJournal(filepath.Join(s.Dir, SamplesFile), name, func(d drawn) bool { return d.appendTo(windows, s.Length) })
	if err != nil {
		return samples{}, err
	}
	return samples{j}, j.cut(len(j.ends))
}

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
func (j samples) add(first int, windows [][]int32) error {
	if j.journal == nil {
		return nil
	}
	d := drawn{Window: first, Position: len(windows[0]) - 1}
	for _, w := range windows {
		d.Tokens = append(d.Tokens, w[d.Position])
	}
	return j.journal.add(d)
}

func (j samples) close() error {
	if j.journal == nil {
		return nil
	}
	return j.journal.close()
}
