package calibrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// overlayVersion is the only version of the description of an overlay.
const overlayVersion = 1

// description is an overlay as JSON: its changes, sorted by name, floats as little-endian F32 in base64.
type description struct {
	Version int             `json:"version"`
	Tensors []changedTensor `json:"tensors"`
}

type changedTensor struct {
	Name    string       `json:"name"`
	Shape   tensor.Shape `json:"shape"`
	Rows    []byte       `json:"rows,omitempty"`
	Columns []byte       `json:"columns,omitempty"`
	Values  []byte       `json:"values,omitempty"`
	File    string       `json:"file,omitempty"`
}

// Marshal describes the changes as JSON; the same changes always give the same bytes. Files are named without their directory.
func (o *Overlay) Marshal() ([]byte, error) {
	d := description{Version: overlayVersion, Tensors: []changedTensor{}}
	for _, name := range slices.Sorted(maps.Keys(o.changes)) {
		c := o.changes[name]
		t := changedTensor{Name: name, Shape: o.infos[o.at[name]].Shape, Values: c.values}
		if c.rows != nil {
			t.Rows = putFloats(nil, c.rows)
		}
		if c.columns != nil {
			t.Columns = putFloats(nil, c.columns)
		}
		if c.file != "" {
			t.File = filepath.Base(c.file)
		}
		d.Tensors = append(d.Tensors, t)
	}
	return json.Marshal(d)
}

// OpenOverlay reads the output of Marshal; files are in dir. It returns tensor.ErrCorrupt for a description that does not fit
// the base, contains numbers that are not finite, or differs from what Marshal would write, and tensor.ErrUnsupported for
// another version.
func OpenOverlay(base tensor.Source, b []byte, dir string) (*Overlay, error) {
	var d description
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("overlay: %w: %w", err, tensor.ErrCorrupt)
	}
	if d.Version != overlayVersion {
		return nil, fmt.Errorf("overlay: version %d: %w", d.Version, tensor.ErrUnsupported)
	}
	o := NewOverlay(base)
	last := ""
	for _, t := range d.Tensors {
		if t.Name <= last {
			return nil, fmt.Errorf("overlay: %s follows %s: %w", t.Name, last, tensor.ErrCorrupt)
		}
		last = t.Name
		if err := o.apply(t, dir); err != nil {
			return nil, fmt.Errorf("overlay: %w", err)
		}
	}
	// This rejects everything else that the decoder accepts: unknown or duplicate keys, spaces, another spelling.
	if again, err := o.Marshal(); err != nil || !bytes.Equal(again, b) {
		return nil, fmt.Errorf("overlay: not in canonical form: %w", tensor.ErrCorrupt)
	}
	return o, nil
}

// apply makes the changes of a description.
func (o *Overlay) apply(t changedTensor, dir string) error {
	info, _, err := o.content(t.Name)
	if err != nil {
		return err
	}
	if !slices.Equal(info.Shape, t.Shape) {
		return fmt.Errorf("%s: shape %s, described as %s: %w", t.Name, info.Shape, t.Shape, tensor.ErrCorrupt)
	}
	var rows, columns, values []float32
	for _, f := range []struct {
		dst *[]float32
		src []byte
	}{{&rows, t.Rows}, {&columns, t.Columns}, {&values, t.Values}} {
		if len(f.src)%4 != 0 {
			return fmt.Errorf("%s: %d bytes of floats: %w", t.Name, len(f.src), tensor.ErrCorrupt)
		}
		if f.src != nil {
			*f.dst = make([]float32, len(f.src)/4)
			kernel.F32FromBytes(*f.dst, f.src)
		}
	}
	switch {
	case values != nil && t.File != "", rows == nil && columns == nil && values == nil && t.File == "":
		return fmt.Errorf("%s: must be changed in one way: %w", t.Name, tensor.ErrCorrupt)
	case values != nil:
		err = o.ReplaceValues(t.Name, values)
	case t.File != "":
		if t.File != filepath.Base(t.File) || !filepath.IsLocal(t.File) {
			return fmt.Errorf("%s: %q is not the name of a file: %w", t.Name, t.File, tensor.ErrCorrupt)
		}
		err = o.ReplaceFile(t.Name, filepath.Join(dir, t.File))
	}
	if err == nil && rows != nil {
		err = o.ScaleRows(t.Name, rows)
	}
	if err == nil && columns != nil {
		if len(info.Shape) == 1 {
			return o.ScaleVector(t.Name, columns)
		}
		err = o.ScaleColumns(t.Name, columns)
	}
	return err
}
