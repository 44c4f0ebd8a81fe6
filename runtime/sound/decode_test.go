package sound_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/sound"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "files", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBeyondEngine checks files that the engine cannot read against others with the same sound.
func TestBeyondEngine(t *testing.T) {
	t.Parallel()
	for name, same := range map[string]string{
		"16000.flac": "16000.wav", "stereo.flac": "16000.wav", "listed.wav": "16000.wav", "24bits.wav": "float.wav",
	} {
		got, err := sound.Decode(bytes.NewReader(file(t, name)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, err := sound.Decode(bytes.NewReader(file(t, same)))
		if err != nil {
			t.Fatal(err)
		}
		const step = 2.0 / (1 << 23) // of 24 bits: the file was scaled and truncated
		if !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Abs(float64(a-b)) <= step }) {
			t.Errorf("%s differs from %s", name, same)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	patched := func(name string, at int, value uint32) []byte {
		b := bytes.Clone(file(t, name))
		binary.LittleEndian.PutUint32(b[at:], value)
		return b
	}
	cut := func(name string) []byte { b := file(t, name); return b[:2*len(b)/3] }
	for _, c := range []struct {
		name string
		data []byte
		err  error
		part string
	}{
		{"empty", nil, tensor.ErrCorrupt, "no bytes"},
		{"text", []byte("a longer text"), tensor.ErrUnsupported, "convert MP3 and others to WAV"},
		{"MP3", []byte("ID3\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00"), tensor.ErrUnsupported, "convert MP3 and others to WAV"},
		{"no samples", file(t, "empty.wav"), tensor.ErrCorrupt, "no samples"},
		{"mu-law", file(t, "law.wav"), tensor.ErrUnsupported, "encoding 7"},
		{"half a WAV", cut("16000.wav"), tensor.ErrCorrupt, "ends after 526 samples"},
		{"half a FLAC", cut("16000.flac"), tensor.ErrCorrupt, "FLAC sound is damaged"},
		{"huge chunk", patched("16000.wav", 40, 1<<31), tensor.ErrCorrupt, "ends after 800 samples"},
		{"rate 0", patched("16000.wav", 24, 0), tensor.ErrUnsupported, "0 samples per second"},
		{"rate 4 GHz", patched("16000.wav", 24, 1<<32-1), tensor.ErrUnsupported, "samples per second"},
		{"no channels", patched("16000.wav", 20, 1), tensor.ErrCorrupt, "no channels"},
		{"header alone", file(t, "16000.wav")[:36], tensor.ErrCorrupt, "no samples"},
		{"a sample that is NaN", patched("float.wav", 100, 0x7fc00000), tensor.ErrCorrupt, "samples that are NaN, infinite or beyond 65536"},
		{"an infinite sample", patched("float.wav", 100, 0xff800000), tensor.ErrCorrupt, "samples that are NaN, infinite"},
		{"a huge sample", patched("float.wav", 100, 0x47800001), tensor.ErrCorrupt, "samples that are NaN, infinite"},
		{"a sample of 1/48000 s", patched("48000.wav", 40, 2), tensor.ErrCorrupt, "no samples"},
		{"samples without header", []byte("RIFF\x10\x00\x00\x00WAVEdata\x02\x00\x00\x00ab"), tensor.ErrCorrupt, "without a header"},
	} {
		wave, err := sound.Decode(bytes.NewReader(c.data))
		if !errors.Is(err, c.err) || wave != nil {
			t.Errorf("%s: %d samples, %v, want %v", c.name, len(wave), err, c.err)
		} else if !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: %q lacks %q", c.name, err, c.part)
		}
	}
	for _, c := range []struct {
		name             string
		seconds, samples int
		part             string
	}{
		{"16000.wav", 0, 800, "longer than 0 s"}, {"16000.flac", 0, 800, "longer than 0 s"}, {"16000.wav", 1, 799, "more than 799 samples"},
		{"16000.flac", 1, 799, "more than 799 samples"}, {"16000.wav", 1, 800, ""}, {"16000.flac", 1, 800, ""},
	} {
		wave, err := sound.DecodeWithin(bytes.NewReader(file(t, c.name)), c.seconds, c.samples)
		switch {
		case c.part == "" && (err != nil || len(wave) != 800), c.part != "" && (!errors.Is(err, tensor.ErrUnsupported) || wave != nil):
			t.Errorf("%+v: %d samples, %v", c, len(wave), err)
		case c.part != "" && !strings.Contains(err.Error(), c.part):
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := sound.Open(filepath.Join(t.TempDir(), "none.wav")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, _, err := sound.Whisper(make([]float32, 200)); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("200 samples: %v", err)
	}
	if features, frames, err := sound.Whisper(make([]float32, 201)); err != nil || frames != 1 || len(features) != 128 {
		t.Errorf("201 samples: %d features, %d frames, %v", len(features), frames, err)
	}
	for _, f := range []func(audioType string, wave []float32) ([]float32, error){sound.Features, sound.Library} {
		for _, n := range []int{0, 200, 319} {
			if _, err := f("conformer", make([]float32, n)); !errors.Is(err, tensor.ErrUnsupported) {
				t.Errorf("%d samples: %v", n, err)
			}
		}
		if features, err := f("conformer", make([]float32, 320)); err != nil || len(features) != 2*128 {
			t.Errorf("320 samples: %d features, %v", len(features), err)
		}
		for _, n := range []int{0, 200, 351} {
			if _, err := f("usm", make([]float32, n)); !errors.Is(err, tensor.ErrUnsupported) {
				t.Errorf("%d samples: %v", n, err)
			}
		}
		if features, err := f("usm", make([]float32, 352)); err != nil || len(features) != 128 {
			t.Errorf("352 samples: %d features, %v", len(features), err)
		}
		if _, err := f("gammatone", make([]float32, 320)); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("features of another kind: %v", err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	list, err := filepath.Glob(filepath.Join("testdata", "files", "*"))
	if err != nil || len(list) < 10 {
		f.Fatalf("%d seeds, %v", len(list), err)
	}
	for _, name := range list {
		f.Add(file(f, filepath.Base(name)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		wave, err := sound.Decode(bytes.NewReader(data))
		switch {
		case err == nil && slices.ContainsFunc(wave, func(v float32) bool { return !(v >= -1<<16 && v <= 1<<16) }):
			t.Fatal("a sample without bounds")
		case err == nil && len(wave) == 0:
			t.Fatal("no samples and no error")
		case err != nil && (wave != nil || !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported)):
			t.Fatalf("%d samples, %v", len(wave), err)
		}
	})
}
