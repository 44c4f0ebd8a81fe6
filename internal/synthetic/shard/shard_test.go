package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// header is that of the file that TestWrite expects.
const header = `{"__metadata__":{"format":"pt"},` +
	`"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},` +
	`"c":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]},` +
	`"b":{"dtype":"F8_E5M2","shape":[],"data_offsets":[14,15]}}`

func TestWrite(t *testing.T) {
	infos := []tensor.Info{
		{Name: "b", DType: tensor.F8E5M2},
		{Name: "c", DType: tensor.BF16, Shape: tensor.Shape{1, 3}},
		{Name: "a", DType: tensor.F32, Shape: tensor.Shape{2}},
	}
	data := map[string]string{"a": "aaaaaaaa", "b": "b", "c": "cccccc"}
	open := func(name string) (io.Reader, error) { return strings.NewReader(data[name]), nil }
	padded := header + strings.Repeat(" ", -len(header)&7)
	want := string(binary.LittleEndian.AppendUint64(nil, uint64(len(padded)))) + padded + "aaaaaaaaccccccb"
	for range 2 {
		var got bytes.Buffer
		if err := Write(&got, infos, open); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Error(diff)
		}
		slices.Reverse(infos) // which must not matter
	}
	data["c"] = "ccc"
	if err := Write(io.Discard, infos, open); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("a short tensor: %v", err)
	}
	infos[0].Shape = tensor.Shape{-1}
	if err := Write(io.Discard, infos, open); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("a negative dimension: %v", err)
	}
}
