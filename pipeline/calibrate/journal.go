package calibrate

import (
	"bytes"
	"os"
	"strconv"

	"github.com/llmexport/llmexport/internal/sealed"
)

// journal is a file of lines of JSON, each written once what it records is complete. A line is sealed with the name of the journal
// and its number, so a line of another journal or a damaged one does not count, nor do those after it.
type journal struct {
	path, name string
	ends       []int64  // of the valid lines, in bytes
	file       *os.File // nil unless lines can be appended
}

// readJournal calls accept with the lines of a journal as far as they are valid and accepted. A missing file has no lines.
func readJournal[T any](path, name string, accept func(line T) bool) (*journal, error) {
	j := &journal{path: path, name: name}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var v T
		if line[len(line)-1] != '\n' || sealed.Unmarshal(j.seal(), line, &v) != nil || !accept(v) {
			break
		}
		j.ends = append(j.ends, j.size()+int64(len(line)))
	}
	return j, nil
}

// seal is what the next line is sealed with.
func (j *journal) seal() string { return j.name + ":" + strconv.Itoa(len(j.ends)) }

func (j *journal) size() int64 {
	if len(j.ends) == 0 {
		return 0
	}
	return j.ends[len(j.ends)-1]
}

// cut keeps the first n lines; more can be appended then.
func (j *journal) cut(n int) (err error) {
	j.ends = j.ends[:n]
	if j.file == nil {
		if j.file, err = os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666); err != nil {
			return err
		}
	}
	return j.file.Truncate(j.size())
}

// add appends a line.
func (j *journal) add(v any) error {
	b, err := sealed.Marshal(j.seal(), v)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if _, err := j.file.Write(b); err != nil {
		return err
	}
	j.ends = append(j.ends, j.size()+int64(len(b)))
	return nil
}

// close ends the appending.
func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	f := j.file
	j.file = nil
	return f.Close()
}
