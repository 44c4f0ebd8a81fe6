package calibrate

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/llmexport/llmexport/internal/sealed"
)

// finding is a line of the journal of a measurement: what a finished step found.
type finding struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values,omitempty"`
	// SHA256 is that of the file of the step, which has its name, if it has one.
	SHA256 string `json:"sha256,omitempty"`
}

// steps is the journal of a measurement. A measurement takes the same steps in the same order whenever it runs, so one that was
// killed finds the results of its first steps here. Lines are sealed with the name of the directory and their number.
type steps struct {
	path, name string
	finished   []finding // by this run and those before
	at         int       // the next step
	journal    *os.File
}

// measuredFile is the name of the journal.
const measuredFile = "measured.jsonl"

// openSteps reads the steps that were finished in dir under a name, as far as their lines are intact.
func openSteps(dir, name string) (*steps, error) {
	s := &steps{path: filepath.Join(dir, measuredFile), name: name}
	text, err := os.ReadFile(s.path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var one finding
		if sealed.Unmarshal(s.about(len(s.finished)), line, &one) != nil {
			break
		}
		s.finished = append(s.finished, one)
	}
	return s, s.cut(len(s.finished))
}

// about returns the name that a line is sealed with.
func (s *steps) about(i int) string { return s.name + "/" + measuredFile + ":" + strconv.Itoa(i) }

func (s *steps) line(i int) ([]byte, error) {
	b, err := sealed.Marshal(s.about(i), s.finished[i])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.finished[i].Name, err)
	}
	return append(b, '\n'), nil
}

// cut keeps the first n steps, and opens the journal to append more.
func (s *steps) cut(n int) error {
	if err := s.close(); err != nil {
		return err
	}
	s.finished = s.finished[:n]
	var b []byte
	for i := range s.finished {
		line, err := s.line(i)
		if err != nil {
			return err
		}
		b = append(b, line...)
	}
	err := replaceFile(s.path, b)
	if err == nil {
		s.journal, err = os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0o666)
	}
	return err
}

// has reports whether a step is finished that is not reached yet.
func (s *steps) has(name string) bool {
	for _, f := range s.finished[s.at:] {
		if f.Name == name {
			return true
		}
	}
	return false
}

// do returns the values of the next step: those of the journal, or else those of f, which it adds.
func (s *steps) do(name string, f func() ([]float64, error)) ([]float64, error) {
	if s.at < len(s.finished) {
		if found := s.finished[s.at]; found.Name == name {
			s.at++
			return found.Values, nil
		}
		if err := s.cut(s.at); err != nil { // of a measurement that took other steps
			return nil, err
		}
	}
	values, err := f()
	if err != nil {
		return nil, err
	}
	return values, s.add(finding{Name: name, Values: values})
}

// add appends a step that was taken.
func (s *steps) add(one finding) error {
	s.finished = append(s.finished, one)
	line, err := s.line(s.at)
	if err == nil {
		_, err = s.journal.Write(line)
	}
	s.at++
	return err
}

// close ends the journal.
func (s *steps) close() error {
	if s.journal == nil {
		return nil
	}
	j := s.journal
	s.journal = nil
	return j.Close()
}
