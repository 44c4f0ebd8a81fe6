// Package shard writes safetensors files.
package shard

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Write writes one file. Tensors go by descending element size and then by name, as in the reference writer, so that each is
// aligned and the same tensors always give the same bytes; Size and File of the infos are not read. open is called once for
// each tensor, in the order of the file; a reader that gives fewer bytes than shape and type call for is tensor.ErrCorrupt.
// The metadata is {"format": "pt"}, without which transformers rejects a file.
func Write(w io.Writer, tensors []tensor.Info, open func(name string) (io.Reader, error)) error {
	order, head, _, err := layout(tensors)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, t := range order {
		r, err := open(t.Name)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		switch n, err := io.CopyN(w, r, t.Size); {
		case err == io.EOF:
			return fmt.Errorf("tensor %q: %d bytes of %d: %w", t.Name, n, t.Size, tensor.ErrCorrupt)
		case err != nil:
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// WriteHeader writes what Write writes before the first tensor, and returns the length of the whole file. A file of this
// length that ends after the header is, where file systems have holes, one whose elements are all zero.
func WriteHeader(w io.Writer, tensors []tensor.Info) (fileSize int64, err error) {
	_, head, size, err := layout(tensors)
	if err != nil {
		return 0, err
	}
	_, err = w.Write(head)
	return int64(len(head)) + size, err
}

// entry is the header's description of a tensor.
type entry struct {
	DType   string       `json:"dtype"`
	Shape   tensor.Shape `json:"shape"`
	Offsets [2]int64     `json:"data_offsets"`
}

// layout returns the tensors with their sizes in the order of the file, the header with its length in front, and the length
// of all tensors. Names must differ.
func layout(tensors []tensor.Info) (order []tensor.Info, head []byte, size int64, err error) {
	order = slices.Clone(tensors)
	slices.SortFunc(order, func(a, b tensor.Info) int {
		return cmp.Or(-cmp.Compare(a.DType.Size(), b.DType.Size()), cmp.Compare(a.Name, b.Name))
	})
	b := bytes.NewBufferString(`00000000{"__metadata__":{"format":"pt"}`)
	for i := range order {
		t := &order[i]
		n, err := t.Shape.Elements()
		if err == nil {
			t.Size, err = tensor.Mul(n, t.DType.Size())
		}
		begin := size
		if err == nil {
			size, err = tensor.Add(size, t.Size)
		}
		if err != nil {
			return nil, nil, 0, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, nil, 0, err
		}
		e, err := json.Marshal(entry{t.DType.String(), append(tensor.Shape{}, t.Shape...), [2]int64{begin, size}})
		if err != nil {
			return nil, nil, 0, err
		}
		fmt.Fprintf(b, ",%s:%s", name, e)
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return order, b.Bytes(), size, nil
}
