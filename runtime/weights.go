package runtime

import (
	"fmt"
	"os"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// weights is a weight file in memory: mapped if the system supports it, else read.
type weights struct {
	b     []byte
	unmap func()
}

func openWeights(dir, name string) (*weights, error) {
	f, size, err := openFile(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%s: %d bytes do not fit in memory: %w", name, size, tensor.ErrUnsupported)
	}
	if size == 0 {
		return &weights{}, nil
	}
	b, unmap, err := tensor.MapFile(f, int(size))
	if err == nil {
		return &weights{b, unmap}, nil
	}
	if b, err = os.ReadFile(f.Name()); err != nil {
		return nil, err
	}
	return &weights{b: b}, nil
}

// Size implements mnn.Weights.
func (w *weights) Size() int64 { return int64(len(w.b)) }

// Bytes implements mnn.Weights.
func (w *weights) Bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > w.Size() || n > w.Size()-off {
		return nil, fmt.Errorf("%d bytes from %d on are outside a weight file of %d bytes: %w", n, off, w.Size(), tensor.ErrCorrupt)
	}
	return w.b[off : off+n : off+n], nil
}

func (w *weights) close() {
	if w.unmap != nil {
		w.unmap()
	}
	w.b, w.unmap = nil, nil
}
