package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// file puts the length before a header and n data bytes after it.
func file(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, n)...)
}

func read(b []byte) (*Header, error) { return ReadHeader(bytes.NewReader(b), int64(len(b))) }

func TestReadHeader(t *testing.T) {
	b := file(`{"b":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},"__metadata__":{"format":"pt"},`+
		`"a":{"data_offsets":[0,6],"dtype":"BF16","shape":[1,3]},"z":{"dtype":"F8_E4M3","shape":[],"data_offsets":[14,15]},`+
		`"none":{"dtype":"I64","shape":[4,0],"data_offsets":[6,6]}}   `, 15)
	got, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(len(b) - 15)
	want := &Header{
		Entries: []Entry{
			{tensor.Info{Name: "a", DType: tensor.BF16, Shape: tensor.Shape{1, 3}, Size: 6}, at},
			{tensor.Info{Name: "none", DType: tensor.I64, Shape: tensor.Shape{4, 0}, Size: 0}, at + 6},
			{tensor.Info{Name: "b", DType: tensor.F32, Shape: tensor.Shape{2}, Size: 8}, at + 6},
			{tensor.Info{Name: "z", DType: tensor.F8E4M3, Shape: tensor.Shape{}, Size: 1}, at + 14},
		},
		Metadata: map[string]string{"format": "pt"},
		Size:     at,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// A remote reader holds the first bytes only, perhaps more of them than needed.
	for _, n := range []int64{at, at + 3} {
		if got, err := ParseHeader(b[:n], int64(len(b))); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("ParseHeader of %d bytes: %v", n, err)
		}
	}
	if n, err := HeaderSize(b[:8], int64(len(b))); n != at || err != nil {
		t.Errorf("HeaderSize = %d, %v; want %d", n, err, at)
	}
}

// hostile are headers that must be refused, each with a word of the message that tells why.
var hostile = []struct {
	name, header string
	data         int
	want         string
}{
	{"empty header", ``, 0, "begin with {"},
	{"only spaces", `    `, 0, "begin with {"},
	{"leading space", ` {}`, 0, "begin with {"},
	{"array", `[]`, 0, "begin with {"},
	{"not JSON", `{"a":`, 0, "not valid JSON"},
	{"trailing comma", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}`, 1, "not valid JSON"},
	{"two objects", `{}{}`, 0, "more than one"},
	{"zero padding", "{}\x00\x00", 0, "more than one"},
	{"bad UTF-8", "{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "UTF-8"},
	{"entry is a number", `{"a":1}`, 0, `tensor "a": entry: no {`},
	{"entry is null", `{"a":null}`, 0, "entry"},
	{"entry is deep", `{"a":` + strings.Repeat("[", 100_000), 0, "entry"},
	{"duplicate tensor", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2, `"a" comes twice`},
	{"duplicate by escape", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`,
		2, `"a" comes twice`},
	{"duplicate key", `{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1, `"dtype" comes twice`},
	{"unknown key", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0}}`, 1, `unknown key "x"`},
	{"key in capitals", `{"a":{"DType":"U8","shape":[1],"data_offsets":[0,1]}}`, 1, `unknown key "DType"`},
	{"missing dtype", `{"a":{"shape":[1],"data_offsets":[0,1]}}`, 1, "not all of"},
	{"missing shape", `{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1, "not all of"},
	{"missing offsets", `{"a":{"dtype":"U8","shape":[1]}}`, 1, "not all of"},
	{"dtype is a number", `{"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}}`, 1, "dtype: no string"},
	{"dtype is long", `{"a":{"dtype":"` + strings.Repeat("F", 1000) + `","shape":[1],"data_offsets":[0,1]}}`, 1, "dtype"},
	{"shape is null", `{"a":{"dtype":"U8","shape":null,"data_offsets":[0,1]}}`, 1, "shape: no ["},
	{"negative shape", `{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1, "-1 is not a size"},
	{"minus zero", `{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}`, 0, "-0 is not a size"},
	{"fraction", `{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1, "1.0 is not a size"},
	{"exponent", `{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}`, 1, "1e0 is not a size"},
	{"shape beyond int64", `{"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}}`, 1, "is not a size"},
	{"shape overflow", `{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0, "size 4294967296 x 4294967296"},
	{"byte overflow", `{"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0, "x 8"},
	{"too many dimensions", `{"a":{"dtype":"U8","shape":[1` + strings.Repeat(",1", maxRank) + `],"data_offsets":[0,1]}}`, 1, "dimensions"},
	{"no offsets", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[]}}`, 0, "0 and not two"},
	{"one offset", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}}`, 0, "1 and not two"},
	{"three offsets", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}`, 1, "more than two"},
	{"end before begin", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1, "before begin"},
	{"wrong size for dtype", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4, "F32 [2] takes 8 bytes, data_offsets give 4"},
	{"hole at the start", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2, `tensor "a": begins at 1, a hole`},
	{"hole inside", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3,
		`tensor "b": begins at 2, a hole`},
	{"overlap", `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3, `tensor "b": begins at 1, inside`},
	{"same bytes twice", `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2, "inside"},
	{"past the end", `{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 8, `tensor "a": ends at 9, 1 bytes past`},
	{"huge end", `{"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}}`, 8, "past the end"},
	{"extra bytes", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2, "the tensors end at"},
	{"metadata is a list", `{"__metadata__":[]}`, 0, "__metadata__: no {"},
	{"metadata holds a number", `{"__metadata__":{"a":1}}`, 0, "__metadata__: no string"},
	{"metadata key twice", `{"__metadata__":{"a":"1","a":"2"}}`, 0, `"a" comes twice`},
	{"metadata twice", `{"__metadata__":{},"__metadata__":{}}`, 0, `"__metadata__" comes twice`},
}

func TestReadHeaderRefuses(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			h, err := read(file(c.header, c.data))
			if !errors.Is(err, tensor.ErrCorrupt) || h != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v; want ErrCorrupt with %q", h, err, c.want)
			}
		})
	}
	for _, dtype := range []string{"F4", "F8_E8M0", "invalid", ""} {
		b := file(fmt.Sprintf(`{"a":{"dtype":%q,"shape":[1],"data_offsets":[0,1]}}`, dtype), 1)
		if _, err := read(b); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), `tensor "a"`) {
			t.Errorf("dtype %q: %v; want ErrUnsupported with the tensor's name", dtype, err)
		}
	}
}

func TestReadHeaderLength(t *testing.T) {
	for _, n := range []uint64{1, MaxHeader, MaxHeader + 1, math.MaxInt64, math.MaxInt64 - 7, math.MaxUint64} {
		b := binary.LittleEndian.AppendUint64(nil, n)
		allocs := testing.AllocsPerRun(1, func() {
			if _, err := read(b); !errors.Is(err, tensor.ErrCorrupt) {
				t.Errorf("length %d: %v", n, err)
			}
		})
		if allocs > 50 {
			t.Errorf("length %d: %v allocations", n, allocs)
		}
	}
	if _, err := HeaderSize(make([]byte, 8), -1); !errors.Is(err, tensor.ErrCorrupt) {
		t.Error(err)
	}
}

// TestReadHeaderTruncated cuts a valid file at every byte.
func TestReadHeaderTruncated(t *testing.T) {
	b := generate(t, 3)
	for n := range b {
		if _, err := read(b[:n]); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
		// The size that was promised is right, and the reader ends early.
		h, err := ReadHeader(bytes.NewReader(b[:n]), int64(len(b)))
		if err == nil && int64(n) < h.Size {
			t.Errorf("reader of %d bytes: no error", n)
		}
		if err != nil && !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("reader of %d bytes: %v", n, err)
		}
	}
}

type brokenReader struct{ error }

func (b brokenReader) ReadAt([]byte, int64) (int, error) { return 0, b.error }

func TestReadHeaderPassesReadErrors(t *testing.T) {
	want := errors.New("disk on fire")
	if _, err := ReadHeader(brokenReader{want}, 100); !errors.Is(err, want) || errors.Is(err, tensor.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := ReadHeader(brokenReader{io.EOF}, 100); !errors.Is(err, tensor.ErrCorrupt) {
		t.Error(err)
	}
}

func TestLongNameIsShortInMessages(t *testing.T) {
	name := strings.Repeat("n", 100_000)
	_, err := read(file(`{"`+name+`":{"dtype":"U8"}}`, 0))
	if err == nil || len(err.Error()) > 500 {
		t.Errorf("message of %d bytes", len(err.Error()))
	}
}
