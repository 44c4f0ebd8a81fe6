package verify

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/sound"
)

// Hearing computes with the source's encoder of sound.
type Hearing struct {
	// Rows returns the rows of a clip with features [[sound.Mels], frames].
	Rows func(ctx context.Context, features []float32) ([]float32, error)
	// Hidden returns the input of the head for a window whose tokens pad become rows, in order.
	Hidden func(ctx context.Context, window []int32, pad int32, rows []float32) ([]float32, error)
	// Features is the kind of features, audio_type of llm_config.json.
	Features string
	// Words are the ids that the tokenizer has for what stands for a clip, by their keys in llm_config.json.
	Words map[string]int32
	// Start and End are the words that prompts have around a clip.
	Start, End string
}

// sounds: the encoder of sound and the text model together compute from a prompt with two clips what the source computes, at the source's
// precision up to rounding, and as shipped within the limit of the check kl for text.
type sounds struct{}

func (sounds) String() string { return "sounds" }

func (sounds) Hint(value map[string]float64) string { return shownHint(value, "encoder") }

func (sounds) Check(ctx context.Context, s *Subject) (Finding, error) {
	if reason, ok := s.comparable(); !ok {
		return skip("%s", reason)
	}
	if s.Source.Hearing == nil {
		return skip(needsWeights)
	}
	if wrong := otherWords(s.Source.Hearing.Words, map[string]int32{"audio_pad": s.Package.Config.AudioPad}); wrong != "" {
		return fail(nil, "%s", wrong)
	}
	p, err := newSoundPrompt(ctx, s)
	if err != nil {
		return Finding{}, err
	}
	return p.check(ctx, s, medium{
		name: "clips", reader: "encoder", count: len(p.features), part: s.Package.Audio(),
		read: func(ctx context.Context, o runtime.Options) ([]runtime.Picture, []float32, error) {
			ear, err := runtime.NewEar(s.Package, cpu.Backend{}, o)
			if err != nil {
				return nil, nil, err
			}
			return p.heard(ctx, ear)
		},
		cost: func(ctx context.Context, value map[string]float64) (string, error) { return p.library(ctx, s, value) },
	})
}

// soundPrompt is a prompt with clips, and what the source makes of it.
type soundPrompt struct {
	shownPrompt
	waves [][]float32
	// width is the number of columns of the package's rows, hidden of the source's.
	width, hidden int
	features      [][]float32 // those of the engine
}

// clipSeconds are the lengths of the clips of a prompt. The first has an even number of frames in each step of the encoder, the second
// leaves one over in each.
var clipSeconds = []float64{1.2, 0.65}

// newSoundPrompt makes a prompt with clips, as many as the positions of the model allow.
func newSoundPrompt(ctx context.Context, s *Subject) (*soundPrompt, error) {
	windows, err := s.windows()
	if err != nil {
		return nil, err
	}
	c := s.Package.Config
	p := &soundPrompt{shownPrompt: shownPrompt{words: windows[0]}, width: c.HiddenSize, hidden: s.Source.Model.Hidden}
	mark := func(word string) {
		if id, ok := s.Source.Tokenizer.ID(word); ok {
			p.tokens = append(p.tokens, id)
		}
	}
	for i, seconds := range clipSeconds {
		p.takeWords()
		wave := playedClip(seconds, i)
		features, err := sound.Features(s.Source.Hearing.Features, wave)
		if err != nil {
			return nil, err
		}
		rows, err := s.Source.Hearing.Rows(ctx, features)
		if err != nil {
			return nil, err
		}
		n := len(rows) / s.Source.Model.Hidden
		if i > 0 && len(p.tokens)+n > c.MaxPositions-3*shownWords {
			break
		}
		p.waves, p.features, p.rows = append(p.waves, wave), append(p.features, features), append(p.rows, rows...)
		mark(s.Source.Hearing.Start)
		p.tokens = append(p.tokens, slices.Repeat([]int32{c.AudioPad}, n)...)
		mark(s.Source.Hearing.End)
	}
	p.takeWords()
	p.logits, err = p.judged(ctx, s, p.rows)
	return p, err
}

// playedClip is a clip that ends with 30 ms of silence: three tones that rise and fall, a quiet noise, and another one for every number.
func playedClip(seconds float64, number int) []float32 {
	wave := make([]float32, int(seconds*sound.Rate))
	noise := uint32(number)
	for i := range wave[:len(wave)-sound.Rate*30/1000] {
		t := float64(i) / sound.Rate
		noise = noise*1664525 + 1013904223
		v := 0.02 * (float64(float64(noise>>8)/(1<<23)) - 1)
		for k := range 3 {
			f := float64(180*(k+1)*(k+number+1)) + float64(300*t*float64(k-1))
			sin, _ := kernel.Sincos(2 * math.Pi * f * t)
			_, cos := kernel.Sincos(2 * math.Pi * float64(3+k+number) * t)
			v += float64(0.2 * sin * (1 + cos) / 2)
		}
		wave[i] = float32(math.Round(v*(1<<15)) / (1 << 15))
	}
	return wave
}

// judged returns the logits of the source for the prompt with rows of clips.
func (p *soundPrompt) judged(ctx context.Context, s *Subject, rows []float32) (logitRows, error) {
	h, err := s.Source.Hearing.Hidden(ctx, p.tokens, s.Package.Config.AudioPad, rows)
	if err != nil {
		return nil, err
	}
	return s.sourceLogits(s.Source.Reference, h), nil
}

// heard returns what an encoder makes of the clips.
func (p *soundPrompt) heard(ctx context.Context, ear *runtime.Ear) (list []runtime.Picture, rows []float32, err error) {
	for _, f := range p.features {
		x, err := ear.Features(ctx, f)
		if err != nil {
			return nil, nil, err
		}
		list, rows = append(list, x), append(rows, unmarked(x.Rows, p.width, p.hidden)...)
	}
	return list, rows, nil
}

// library measures what the engine's features cost: kl_features is the divergence of the source with them from the source with the
// library's. It returns a clause for the detail of the check.
func (p *soundPrompt) library(ctx context.Context, s *Subject, value map[string]float64) (string, error) {
	var all []float32
	for _, wave := range p.waves {
		features, err := sound.Library(s.Source.Hearing.Features, wave)
		if err != nil {
			return "", err
		}
		rows, err := s.Source.Hearing.Rows(ctx, features)
		if err != nil {
			return "", err
		}
		all = append(all, rows...)
	}
	logits, err := p.judged(ctx, s, all)
	if err != nil {
		return "", err
	}
	if value["kl_features"], _, err = s.compareLogits(ctx, len(p.tokens), logits, p.logits); err != nil {
		return "", err
	}
	return fmt.Sprintf("; features of the engine in place of the library's cost %.2g nats", value["kl_features"]), nil
}
