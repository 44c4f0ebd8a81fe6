package quant

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const sensitivitiesSeed = "testdata/sensitivities/small.json"

func readSensitivities(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(sensitivitiesSeed))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSensitivities(t *testing.T) {
	data := readSensitivities(t)
	s, err := ParseSensitivities(data)
	if err != nil {
		t.Fatal(err)
	}
	want := &Sensitivities{
		Source: "sha256:" + strings.Repeat("0a", 32),
		Text:   SensitivityText{"a \"text\" <of> its own.txt", "sha256:" + strings.Repeat("f1", 32), 49152},
		Items: []Item{
			{[]string{"layers.0.k", "layers.0.q"}, []Option{
				{Spec{4, 64, false, tensor.F16}, 1152, 0.25, 1280},
				{Spec{4, WholeRow, true, tensor.F16}, 1040, 0.5, 1152},
				{Half, 4096, 0, 8192},
			}},
			{[]string{"layers.0.o"}, []Option{{Spec{3, 32, true, tensor.F32}, 900, 1.5e-9, 2048}}},
		},
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	// Neither the order of items nor that of options counts.
	slices.Reverse(s.Items)
	slices.Reverse(s.Items[1].Options)
	got, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(data), string(got)); diff != "" {
		t.Error(diff)
	}
	if s.Items[0].Members[0] != "layers.0.o" {
		t.Error("Marshal has sorted the items of its receiver")
	}
}

// Real numbers come back bit for bit.
func TestSensitivitiesRoundTrip(t *testing.T) {
	s := &Sensitivities{
		Source: "sha256:" + strings.Repeat("00", 32), Text: SensitivityText{"x", "sha256:" + strings.Repeat("11", 32), 1},
		Items: randomItems(rand.New(rand.NewPCG(1, 1)), 40, formats(), 1),
	}
	b, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseSensitivities(b)
	if err != nil {
		t.Fatal(err)
	}
	budget := Budget{Bytes: 1 << 24}
	want, err := Allocate(s.Items, budget)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Allocate(got.Items, budget)
	if err != nil || a.KL != want.KL || a.Bytes != want.Bytes {
		t.Errorf("%v, %v: an allocation from the file is not that from memory, %v", a, err, want)
	}
}

func TestParseSensitivitiesRefuses(t *testing.T) {
	good := string(readSensitivities(t))
	for _, c := range []struct {
		name, old, new string
		want           error
	}{
		{"empty", good, "", tensor.ErrCorrupt},
		{"no version", `"sensitivities": 1`, `"sensitivity": 1`, tensor.ErrCorrupt},
		{"another version", `"sensitivities": 1`, `"sensitivities": 2`, tensor.ErrUnsupported},
		{"unknown field", `"tokens"`, `"token"`, tensor.ErrCorrupt},
		{"other case", `"tokens"`, `"Tokens"`, tensor.ErrCorrupt},
		{"text behind", " ]\n}\n", " ]\n}\n{}", tensor.ErrCorrupt},
		{"no line end", "\n}\n", "\n}", tensor.ErrCorrupt},
		{"another spelling", "0.25", "0.250", tensor.ErrCorrupt},
		{"negative divergence", "0.25", "-0.25", tensor.ErrCorrupt},
		{"negative zero", `"kl": 0,`, `"kl": -0,`, tensor.ErrCorrupt},
		{"no tokens", "49152", "0", tensor.ErrCorrupt},
		{"source", "sha256:0a", "sha256:0A", tensor.ErrCorrupt},
		{"spec", "w4-brow-sym", "w7-brow-sym", tensor.ErrCorrupt},
		{"spec twice", "w4-brow-sym", "w4-b64-asym", tensor.ErrCorrupt},
		{"order of options", "w4-brow-sym", "w2-brow-sym", tensor.ErrCorrupt},
		{"order of items", "layers.0.o", "layers.0.a", tensor.ErrCorrupt},
		{"member twice", "layers.0.o", "layers.0.q", tensor.ErrCorrupt},
		{"no name", "layers.0.o", "", tensor.ErrCorrupt},
		{"control character", "layers.0.o", `layers.0.\u0007`, tensor.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(good, c.old) {
				t.Fatalf("the seed has no %q", c.old)
			}
			s, err := ParseSensitivities([]byte(strings.Replace(good, c.old, c.new, 1)))
			if s != nil || !errors.Is(err, c.want) {
				t.Errorf("got %v, %v", s, err)
			}
		})
	}
	nan := &Sensitivities{Source: "sha256:" + strings.Repeat("00", 32), Text: SensitivityText{"x", "sha256:" + strings.Repeat("11", 32), 1},
		Items: []Item{{[]string{"a"}, []Option{{Half, 1, math.NaN(), 1}}}}}
	if b, err := nan.Marshal(); b != nil || !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("NaN gives %q, %v", b, err)
	}
}

// What is read is written again, byte for byte, and can be allocated.
func FuzzParseSensitivities(f *testing.F) {
	data := readSensitivities(f)
	if _, err := ParseSensitivities(data); err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSensitivities(data)
		if err != nil {
			if s != nil {
				t.Fatal("sensitivities and an error")
			}
			return
		}
		again, err := s.Marshal()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%v: written as %s", err, again)
		}
		if _, err := frontier(s.Items); err != nil {
			t.Fatal(err)
		}
	})
}
