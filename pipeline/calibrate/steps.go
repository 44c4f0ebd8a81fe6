package calibrate

import "path/filepath"

// finding is a line of the journal of a measurement: what a finished step found.
type finding struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values,omitempty"`
	// SHA256 is that of the file of the step, which has its name, if it has one.
	SHA256 string `json:"sha256,omitempty"`
}

// steps are those of a measurement with their journal. A measurement takes the same steps in the same order whenever it runs, so
// one that was killed finds the results of its first steps here.
type steps struct {
	finished []finding // by this run and those before
	at       int       // the next step
	journal  *journal
}

// measuredFile is the name of the journal.
const measuredFile = "measured.jsonl"

// openSteps reads the steps that were finished in dir under a name, as far as their lines are intact.
func openSteps(dir, name string) (s *steps, err error) {
	s = &steps{}
	s.journal, err = readJournal(filepath.Join(dir, measuredFile), name+"/"+measuredFile, func(one finding) bool {
		s.finished = append(s.finished, one)
		return true
	})
	if err != nil {
		return nil, err
	}
	return s, s.cut(len(s.finished))
}

// cut keeps the first n steps.
func (s *steps) cut(n int) error {
	s.finished = s.finished[:n]
	return s.journal.cut(n)
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
	s.at++
	return s.journal.add(one)
}
