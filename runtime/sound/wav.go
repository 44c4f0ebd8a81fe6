// Package sound reads sounds and computes the features that MNN's LLM engine hands to an audio tower, bit for bit: [Open] and
// [Decode] read WAV and FLAC files within bounds, [Whisper] computes log-mel features. MP3 and others are refused.
//
// The engine itself reads WAV files with 8, 16 or 32 bits and no extended header only.
package sound

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/mewkiz/flac"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	// maxBytes bounds a file.
	maxBytes = 1 << 30
	// largest bounds a sample. Floats may be as large as integers of 16 bits; the square of much larger ones overflows.
	largest = 1 << 16
)

// Open reads a sound from a file, see [Decode].
func Open(path string) ([]float32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	wave, err := Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return wave, nil
}

// Decode reads a WAV or FLAC file and returns samples from -1 to 1 at [Rate]. As in the engine, the first channel is used, and
// other rates are converted by linear interpolation. Damaged files are [tensor.ErrCorrupt], other formats and sounds of more than ten hours
// [tensor.ErrUnsupported].
func Decode(r io.Reader) ([]float32, error) { return DecodeWithin(r, maxSamples/Rate, maxBytes/4) }

// DecodeWithin is Decode for sounds of a stranger: one that is longer than so many seconds, or has more samples before its rate is
// converted, is a [tensor.ErrUnsupported] before it takes more memory.
func DecodeWithin(r io.Reader, seconds, samples int) ([]float32, error) {
	most := limit{seconds, samples}
	b := bufio.NewReader(io.LimitReader(r, maxBytes+1))
	head, err := b.Peek(12)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var wave []float32
	var rate int
	switch {
	case len(head) == 0:
		return nil, fmt.Errorf("the sound has no bytes: %w", tensor.ErrCorrupt)
	case bytes.HasPrefix(head, []byte("RIFF")) && bytes.HasSuffix(head, []byte("WAVE")):
		wave, rate, err = readWAV(b, most)
	case bytes.HasPrefix(head, []byte("fLaC")):
		wave, rate, err = readFLAC(b, most)
	default:
		return nil, fmt.Errorf("not a WAV or FLAC sound; convert MP3 and others to WAV: %w", tensor.ErrUnsupported)
	}
	switch {
	case err != nil:
		return nil, err
	case slices.ContainsFunc(wave, func(v float32) bool { return !(v >= -largest && v <= largest) }):
		return nil, fmt.Errorf("the sound has samples that are NaN, infinite or beyond %g: %w", float32(largest), tensor.ErrCorrupt)
	}
	if wave = resample(wave, rate); len(wave) == 0 {
		return nil, fmt.Errorf("the sound has no samples: %w", tensor.ErrCorrupt)
	}
	return wave, nil
}

// limit bounds a sound before its rate is converted.
type limit struct{ seconds, samples int }

// check refuses a sound that has n samples so far.
func (l limit) check(n, rate int) error {
	switch {
	case rate < 1000 || rate > 1<<20:
		return fmt.Errorf("a sound of %d samples per second: %w", rate, tensor.ErrUnsupported)
	case int64(n) > int64(l.seconds)*int64(rate):
		return fmt.Errorf("the sound is longer than %d s: %w", l.seconds, tensor.ErrUnsupported)
	case n > l.samples:
		return fmt.Errorf("the sound has more than %d samples: %w", l.samples, tensor.ErrUnsupported)
	}
	return nil
}

// resample interpolates between neighbouring samples. The engine computes places in float32, so after some minutes of sound they
// are rough; that is kept.
func resample(wave []float32, rate int) []float32 {
	if rate == Rate {
		return wave
	}
	ratio := float32(Rate) / float32(rate)
	out := make([]float32, int(float32(len(wave))*ratio))
	for i := range out {
		at := float32(i) / ratio
		low := min(int(at), len(wave)-1)
		part := at - float32(low)
		out[i] = float32((1-part)*wave[low]) + float32(part*wave[min(low+1, len(wave)-1)])
	}
	return out
}

// wavFormat is the chunk "fmt " of a WAV file.
type wavFormat struct {
	Encoding, Channels uint16
	Rate, BytesPerSec  uint32
	FrameBytes, Bits   uint16
}

// The encodings of WAV files that are read; extended has the encoding in a longer header.
const (
	pcm      = 1
	ieee     = 3
	extended = 0xfffe
)

// readWAV returns the samples of the first channel.
func readWAV(r *bufio.Reader, most limit) ([]float32, int, error) {
	damaged := func(err error) error { return fmt.Errorf("the WAV sound is damaged: %v: %w", err, tensor.ErrCorrupt) }
	if _, err := r.Discard(12); err != nil {
		return nil, 0, damaged(err)
	}
	var format wavFormat
	for {
		var chunk struct {
			Name [4]byte
			Size uint32
		}
		if err := binary.Read(r, binary.LittleEndian, &chunk); err != nil {
			return nil, 0, damaged(fmt.Errorf("no samples found: %w", err))
		}
		switch string(chunk.Name[:]) {
		case "fmt ":
			header := make([]byte, min(chunk.Size, 40))
			if _, err := io.ReadFull(r, header); err != nil || len(header) < 16 {
				return nil, 0, damaged(errors.New("the header is too short"))
			}
			if _, err := binary.Decode(header, binary.LittleEndian, &format); err != nil {
				return nil, 0, damaged(err)
			}
			if format.Encoding == extended && len(header) == 40 {
				format.Encoding = binary.LittleEndian.Uint16(header[24:])
			}
			chunk.Size -= uint32(len(header))
		case "data":
			if format.FrameBytes == 0 {
				return nil, 0, damaged(errors.New("samples without a header"))
			}
			wave, err := readSamples(io.LimitReader(r, int64(chunk.Size)), format, int64(chunk.Size), most)
			return wave, int(format.Rate), err
		}
		if _, err := r.Discard(int(chunk.Size + chunk.Size%2)); err != nil {
			return nil, 0, damaged(errors.New("no samples found"))
		}
	}
}

// readSamples converts the first channel of so many bytes.
func readSamples(r io.Reader, f wavFormat, size int64, most limit) ([]float32, error) {
	convert, err := f.sample()
	if err != nil {
		return nil, err
	}
	if int(f.FrameBytes) != int(f.Channels)*int(f.Bits)/8 {
		return nil, fmt.Errorf("the WAV sound is damaged: %d times %d bits in %d bytes: %w", f.Channels, f.Bits, f.FrameBytes,
			tensor.ErrCorrupt)
	}
	var wave []float32
	frame := make([]byte, f.FrameBytes)
	for range size / int64(f.FrameBytes) {
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil, fmt.Errorf("the WAV sound is damaged: it ends after %d samples: %w", len(wave), tensor.ErrCorrupt)
		}
		if err := most.check(len(wave)+1, int(f.Rate)); err != nil {
			return nil, err
		}
		wave = append(wave, convert(frame))
	}
	return wave, nil
}

// sample returns a function that converts the sample at the beginning of a frame.
func (f wavFormat) sample() (func([]byte) float32, error) {
	little := binary.LittleEndian
	switch {
	case f.Channels == 0:
		return nil, fmt.Errorf("the WAV sound has no channels: %w", tensor.ErrCorrupt)
	case f.Encoding == pcm && f.Bits == 8:
		return func(b []byte) float32 { return float32(float32(b[0])/128) - 1 }, nil
	case f.Encoding == pcm && f.Bits == 16:
		return func(b []byte) float32 { return float32(int16(little.Uint16(b))) / (1 << 15) }, nil
	case f.Encoding == pcm && f.Bits == 24: // the engine refuses them
		return func(b []byte) float32 {
			return float32(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)) / (1 << 31)
		}, nil
	case f.Encoding == pcm && f.Bits == 32:
		return func(b []byte) float32 { return float32(int32(little.Uint32(b))) / (1 << 31) }, nil
	case f.Encoding == ieee && f.Bits == 32:
		return func(b []byte) float32 { return math.Float32frombits(little.Uint32(b)) }, nil
	}
	return nil, fmt.Errorf("a WAV sound of encoding %d with %d bits; save it with 16 bits: %w", f.Encoding, f.Bits,
		tensor.ErrUnsupported)
}

// readFLAC returns the samples of the first channel.
func readFLAC(r io.Reader, most limit) ([]float32, int, error) {
	damaged := func(err error) error { return fmt.Errorf("the FLAC sound is damaged: %v: %w", err, tensor.ErrCorrupt) }
	s, err := flac.New(r)
	if err != nil {
		return nil, 0, damaged(err)
	}
	if s.Info.BitsPerSample == 0 || s.Info.BitsPerSample > 32 {
		return nil, 0, damaged(fmt.Errorf("%d bits", s.Info.BitsPerSample))
	}
	scale := float32(int64(1) << (s.Info.BitsPerSample - 1))
	var wave []float32
	for {
		f, err := s.ParseNext()
		if err == io.EOF {
			if n := s.Info.NSamples; n != 0 && n != uint64(len(wave)) {
				return nil, 0, damaged(fmt.Errorf("%d of %d samples", len(wave), n))
			}
			return wave, int(s.Info.SampleRate), nil
		}
		if err != nil {
			return nil, 0, damaged(err)
		}
		if len(f.Subframes) == 0 {
			return nil, 0, damaged(errors.New("a frame without channels"))
		}
		if err := most.check(len(wave)+len(f.Subframes[0].Samples), int(s.Info.SampleRate)); err != nil {
			return nil, 0, err
		}
		for _, v := range f.Subframes[0].Samples {
			wave = append(wave, float32(v)/scale)
		}
	}
}
