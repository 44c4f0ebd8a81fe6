package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Write writes one file. Tensors go by falling element size and then by name, as the reference writer
// does, so that each is aligned and the same tensors always give the same bytes; Size and File of the
// infos are not read. data is asked once for each tensor, in the order of the file, for exactly the bytes that shape
// and type call for; a reader that is also an io.Closer is closed. The metadata is {"format": "pt"},
// without which transformers refuses a file.
func Write(w io.Writer, tensors []tensor.Info, data func(name string) (io.Reader, error)) error {
	order := inOrder(tensors)
	head, _, err := layout(order)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, t := range order {
		if err := copyTensor(w, t, data); err != nil {
			return fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
	}
	return nil
}

// WriteHeader writes what Write writes before the first tensor, and gives the length of the whole file. A file of this
// length that ends behind the header is, where file systems have holes, one whose elements are all zero.
func WriteHeader(w io.Writer, tensors []tensor.Info) (fileSize int64, err error) {
	head, size, err := layout(inOrder(tensors))
	if err != nil {
		return 0, err
	}
	_, err = w.Write(head)
	return int64(len(head)) + size, err
}

// inOrder gives tensors in the order of a file.
func inOrder(tensors []tensor.Info) []tensor.Info {
	order := slices.Clone(tensors)
	slices.SortFunc(order, func(a, b tensor.Info) int {
		return cmp.Or(-cmp.Compare(a.DType.Size(), b.DType.Size()), cmp.Compare(a.Name, b.Name))
	})
	return order
}

// layout sets each tensor's Size and returns the header with its length in front, and the length of all tensors.
func layout(order []tensor.Info) (head []byte, size int64, err error) {
	b := new(bytes.Buffer)
	b.Write(make([]byte, 8))
	b.WriteString(`{"` + metadataKey + `":{"format":"pt"}`)
	names := map[string]bool{metadataKey: true}
	end := int64(0)
	for i := range order {
		t := &order[i]
		if names[t.Name] || !utf8.ValidString(t.Name) || t.DType.Size() == 0 {
			return nil, 0, fmt.Errorf("tensor %s of type %s: a name is UTF-8, given once and not %s; a type is known: %w",
				quote(t.Name), t.DType, metadataKey, tensor.ErrUnsupported)
		}
		names[t.Name] = true
		n, err := t.Shape.Elements()
		if err == nil {
			t.Size, err = tensor.Mul(n, t.DType.Size())
		}
		begin := end
		if err == nil {
			end, err = tensor.Add(end, t.Size)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, 0, err
		}
		shape := t.Shape
		if shape == nil {
			shape = tensor.Shape{} // null is no array
		}
		dims, err := json.Marshal(shape)
		if err != nil {
			return nil, 0, err
		}
		fmt.Fprintf(b, `,%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, t.DType, dims, begin, end)
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len()-8 > MaxHeader {
		return nil, 0, fmt.Errorf("header of %d bytes exceeds %d: %w", b.Len()-8, MaxHeader, tensor.ErrUnsupported)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return b.Bytes(), end, nil
}

func copyTensor(w io.Writer, t tensor.Info, data func(name string) (io.Reader, error)) (err error) {
	r, err := data(t.Name)
	if err != nil {
		return err
	}
	if c, ok := r.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	n, err := io.CopyN(w, r, t.Size)
	if err == io.EOF {
		return corrupt("%d bytes of %d", n, t.Size)
	}
	if err != nil {
		return err
	}
	switch n, err := io.CopyN(io.Discard, r, 1); {
	case n > 0:
		return corrupt("more than %d bytes", t.Size)
	case err != io.EOF:
		return err
	}
	return nil
}
