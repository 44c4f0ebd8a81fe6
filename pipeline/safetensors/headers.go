package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// ErrNoWeights is the error of reading weights of a shard of which only the header is here.
var ErrNoWeights = errors.New("only the header of the file is here")

// Head is the beginning of a file that is elsewhere.
type Head struct {
	// Size is that of the whole file, in bytes.
	Size int64 `json:"size"`
	// Bytes are what [ReadHeader] reads: the length, 8 bytes, and the JSON of that length.
	Bytes []byte `json:"bytes"`
}

// ReadHead reads the beginning of the file at path.
func ReadHead(path string) (Head, error) {
	f, err := disk.Open(path)
	if err != nil {
		return Head{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Head{}, err
	}
	first := make([]byte, 8)
	if _, err := io.ReadFull(f, first); err != nil {
		return Head{}, noEOF(filepath.Base(path), err)
	}
	n, err := HeaderSize(first, st.Size())
	if err != nil {
		return Head{}, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	h := Head{Size: st.Size(), Bytes: append(make([]byte, 0, n), first...)[:n]}
	if _, err := io.ReadFull(f, h.Bytes[8:]); err != nil {
		return Head{}, noEOF(filepath.Base(path), err)
	}
	return h, nil
}

func noEOF(name string, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return corrupt("%s: header: the file ends early", name)
	}
	return err
}

// OpenHeaders is [OpenDir] of a checkpoint whose shards are elsewhere: heads has their beginnings by name, and dir holds
// the index if there is one. Reading weights is [ErrNoWeights] for shards without an [Checkpoint.Attach].
func OpenHeaders(dir string, heads map[string]Head, modules ...string) (*Checkpoint, error) {
	c := &Checkpoint{}
	_, single := heads[singleFile]
	err := c.open(dir, single, modules, func(name string) (*shard, *Header, error) {
		head, ok := heads[name]
		if !ok {
			return nil, nil, fmt.Errorf("%s: %w", name, os.ErrNotExist)
		}
		h, err := ParseHeader(head.Bytes, head.Size)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		return &shard{name: name, head: head}, h, nil
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Attach gives the shard of a name its weights, from the file at path. A file with another header or of another size is
// tensor.ErrCorrupt.
func (c *Checkpoint) Attach(name, path string) error {
	s, err := c.shard(name)
	if err != nil {
		return err
	}
	f, err := disk.Open(path)
	if err != nil {
		return err
	}
	if err := s.is(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	if old := s.file.Swap(f); old != nil {
		return old.Close()
	}
	return nil
}

// Detach takes the weights of a shard away again. Nobody may be reading them.
func (c *Checkpoint) Detach(name string) error {
	s, err := c.shard(name)
	if err != nil {
		return err
	}
	if f := s.file.Swap(nil); f != nil {
		return f.Close()
	}
	return nil
}

func (c *Checkpoint) shard(name string) (*shard, error) {
	for _, s := range c.shards {
		if s.name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("shard %s: %w", quote(name), os.ErrNotExist)
}

// is reports whether f is the file whose beginning was read.
func (s *shard) is(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() != s.head.Size {
		return corrupt("%d bytes, not the %d that its header was read with", st.Size(), s.head.Size)
	}
	b := make([]byte, len(s.head.Bytes))
	if _, err := f.ReadAt(b, 0); err != nil {
		return err
	}
	if !bytes.Equal(b, s.head.Bytes) {
		return fmt.Errorf("another header than the one that was read before: %w", tensor.ErrCorrupt)
	}
	_, err = readShard(f)
	return err
}
