//go:build engine

package enginetest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/prompt"
	"github.com/llmexport/llmexport/runtime/sound"
)

// TestSoundsAsHeard holds this program's reading of sounds to the engine's own, from the file to the features: bit for bit.
func TestSoundsAsHeard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain, low, stereo := filepath.Join(dir, "plain.wav"), filepath.Join(dir, "low rate.wav"), filepath.Join(dir, "stereo.wav")
	play(t, plain, sound.Rate, 1, 2*sound.Rate)
	play(t, low, 8000, 1, 4000)
	play(t, stereo, 44100, 2, 44100)
	pkg := export(t, checkpoints(t, false)[0], form{engine: "3.5", bits: 4, table: 16, block: "64"})
	p, err := runtime.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	text := "Hear <audio>" + plain + "</audio>, <audio>" + low + "</audio>\n<audio>" + stereo + "</audio>?"
	pieces, err := prompt.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"whisper", "conformer"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var ids []int32
			var rows []float32
			for _, x := range pieces {
				if x.Kind == prompt.Text {
					ids = append(ids, p.Tokenizer.Encode(x.Text)...)
					continue
				}
				wave, err := sound.Open(x.Text)
				if err != nil {
					t.Fatal(err)
				}
				features, err := sound.Features(kind, wave)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, slices.Repeat([]int32{mirrorPad}, len(features)/mirrorWidth)...)
				rows = append(rows, features...)
			}
			copied := mirrored(t, pkg, map[string]any{"is_audio": true, "audio_type": kind, "audio_pad": mirrorPad})
			tower := &mirror{}
			tower.rows("audio_embeds", tower.input("input_features", mnn.DTFloat, 1, 128, -1), 1, -1, mirrorWidth)
			tower.write(t, copied, "audio", "audio_embeds")
			shown(t, copied, text, ids, rows)
		})
	}
}

// waveHeader is the beginning of a WAV file.
func waveHeader(encoding, bits, rate, channels, frames int) []byte {
	wide := channels * bits / 8
	b := []byte("RIFF----WAVEfmt ")
	for _, v := range []any{
		uint32(16), uint16(encoding), uint16(channels), uint32(rate), uint32(wide * rate), uint16(wide), uint16(bits), []byte("data"), uint32(wide * frames),
	} {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

// writeFloatWave writes a WAV file of floats at 16 kHz.
func writeFloatWave(t *testing.T, name string, wave []float32) {
	t.Helper()
	if err := os.WriteFile(name, append(waveHeader(3, 32, sound.Rate, 1, len(wave)), floatBytes(wave)...), 0o666); err != nil {
		t.Fatal(err)
	}
}

// play writes a WAV file of so many frames of 16 bits.
func play(t *testing.T, name string, rate, channels, frames int) {
	t.Helper()
	b := waveHeader(1, 16, rate, channels, frames)
	for i := range channels * frames {
		n := uint32(i) * 2654435761
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(i*(i/500+300))/3)+uint16(n>>22))
	}
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
}
