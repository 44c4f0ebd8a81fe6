package safetensors

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/llmexport/llmexport/internal/disk"
)

// shard is one open file. It reads by position, so any number of readers may share it.
type shard struct {
	name string
	file atomic.Pointer[os.File] // nil if only head is here
	head Head                    // of a shard that was opened without its weights
}

func openShard(dir, name string) (*shard, *Header, error) {
	f, err := disk.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, nil, err
	}
	h, err := readShard(f)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	s := &shard{name: name}
	s.file.Store(f)
	return s, h, nil
}

func (s *shard) close() error {
	if f := s.file.Load(); f != nil {
		return f.Close()
	}
	return nil
}

func readShard(f *os.File) (*Header, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, corrupt("not a regular file")
	}
	h, err := ReadHeader(f, st.Size())
	if err != nil {
		return nil, err
	}
	return h, crossCheckFile(f, st.Size(), h)
}

// ReadAt turns the end of the file into an error: every requested position lies in a tensor that was
// inside the file when it was opened, and an io.EOF would pass for the end of the tensor.
func (s *shard) ReadAt(p []byte, off int64) (int, error) {
	f := s.file.Load()
	if f == nil {
		return 0, fmt.Errorf("%s: %w", s.name, ErrNoWeights)
	}
	n, err := f.ReadAt(p, off)
	if err == io.EOF && n < len(p) {
		return n, corrupt("%s: ends at byte %d since it was opened", s.name, off+int64(n))
	}
	if n == len(p) {
		return n, nil
	}
	return n, err
}
