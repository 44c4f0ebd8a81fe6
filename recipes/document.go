package recipes

import (
	"fmt"
	"io"
	"os"
)

// ReadDocument reads a YAML file that is not a recipe as strictly as one: the result is the whole document, to be decoded as a
// section is. An error of the file system is returned unchanged, any other one is an *Error.
func ReadDocument(path string) (Section, error) {
	data, err := readLimited(path)
	if err != nil {
		return Section{}, err
	}
	return ParseDocument(data, path)
}

// ParseDocument is ReadDocument for a text; the filename is used in messages.
func ParseDocument(data []byte, filename string) (Section, error) {
	n, err := read(filename, data)
	if err != nil {
		return Section{}, err
	}
	return Section{file: filename, node: n}, nil
}

// readLimited reads a file, at most one byte beyond the limit.
func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}
