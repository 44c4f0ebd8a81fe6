package verify

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/sound"
)

// Hearing computes with the source's encoder of sound.
type Hearing struct {
	// Rows returns the rows of a clip with features [[sound.Mels], frames].
	Rows func(ctx context.Context, features []float32) ([]float32, error)
	// Hidden returns the input of the head for a window whose tokens pad become rows, in order.
	Hidden func(ctx context.Context, window []int32, pad int32, rows []float32) ([]float32, error)
	// Start and End are the words that prompts have around a clip.
	Start, End string
}

// sounds: the encoder of sound and the text model together compute from a prompt with two clips what the source computes, at the source's
// precision up to rounding, and as shipped within the limit of the check kl for text.
type sounds struct{}

func (sounds) String() string { return "sounds" }

func (sounds) Hint(value map[string]float64) string {
	if value["rows"] > maxRowError || value["kl_graph"] > maxGraphKL {
		return ours
	}
	return closer(value["kl"], value["kl_float"], "verify.kl.max") + "; an override that matches the tensors of the encoder gives it more bits"
}

func (sounds) Check(ctx context.Context, s *Subject) (Finding, error) {
	if reason, ok := s.comparable(); !ok {
		return skip("%s", reason)
	}
	if s.Source.Hearing == nil {
		return skip(needsWeights)
	}
	part := s.Package.Audio()
	ear, err := runtime.NewEar(s.Package, cpu.Backend{}, runtime.Options{Mode: backend.Float, Threads: s.Options.Threads, Replace: s.replace(part)})
	if err != nil {
		return Finding{}, err
	}
	p, err := newSoundPrompt(ctx, s)
	if err != nil {
		return Finding{}, err
	}
	heard, rows, err := p.heard(ctx, ear)
	if err != nil {
		return Finding{}, err
	}
	value := map[string]float64{"rows": distanceOf(p.rows, rows), "clips": float64(len(p.features)), "tokens": float64(len(p.tokens))}
	if !(value["rows"] <= maxRowError) {
		return fail(value, "%s at the source's precision makes rows of clips that differ from the source's by %.2g of their length", part.GraphFile, value["rows"])
	}
	sess, err := s.sourceSession(s.Package)
	if err != nil {
		return Finding{}, err
	}
	if value["kl_graph"], err = p.divergence(ctx, s, sess, heard); err != nil {
		return Finding{}, err
	}
	if !(value["kl_graph"] <= maxGraphKL) {
		return fail(value, "KL %.2g of the graphs at the source's precision on a prompt with clips", value["kl_graph"])
	}
	if value["kl_float"], value["rows_float"], err = p.shipped(ctx, s, backend.Float); err != nil {
		return Finding{}, err
	}
	if value["kl"], value["rows_int8"], err = p.shipped(ctx, s, backend.Int8); err != nil {
		return Finding{}, err
	}
	if value["kl_features"], err = p.library(ctx, s); err != nil {
		return Finding{}, err
	}
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	text, _ := e.Float.KL.Mean() // what the weights cost on text, which other checks have judged
	return atMost(value["kl"], s.Options.Checks.KL.limit(s, text), "nats", value,
		"KL %.4g nats (weights alone %.4g, graphs %.2g) on a prompt with %d clips; rows of the encoder differ by %.2g of their length (weights alone %.2g); "+
			"features of the engine in place of the library's cost %.2g nats",
		value["kl"], value["kl_float"], value["kl_graph"], len(p.features), value["rows_int8"], value["rows_float"], value["kl_features"])
}

// soundPrompt is a prompt with clips, and what the source makes of it.
type soundPrompt struct {
	tokens   []int32
	waves    [][]float32
	features [][]float32 // those of the engine
	rows     []float32   // of all clips
	logits   []float32
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
	c, words, p := s.Package.Config, windows[0], &soundPrompt{}
	take := func() {
		n := min(pictureWords, len(words))
		p.tokens, words = append(p.tokens, words[:n]...), words[n:]
	}
	mark := func(word string) {
		if id, ok := s.Source.Tokenizer.ID(word); ok {
			p.tokens = append(p.tokens, id)
		}
	}
	for i, seconds := range clipSeconds {
		take()
		wave := playedClip(seconds, i)
		features, _, err := sound.Whisper(wave)
		if err != nil {
			return nil, err
		}
		rows, err := s.Source.Hearing.Rows(ctx, features)
		if err != nil {
			return nil, err
		}
		n := len(rows) / s.Source.Model.Hidden
		if i > 0 && len(p.tokens)+n > c.MaxPositions-3*pictureWords {
			break
		}
		p.waves, p.features, p.rows = append(p.waves, wave), append(p.features, features), append(p.rows, rows...)
		mark(s.Source.Hearing.Start)
		p.tokens = append(p.tokens, slices.Repeat([]int32{c.AudioPad}, n)...)
		mark(s.Source.Hearing.End)
	}
	take()
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
		v := 0.02 * (float64(noise>>8)/(1<<23) - 1)
		for k := range 3 {
			f := float64(180*(k+1)*(k+number+1)) + 300*t*float64(k-1)
			v += 0.2 * math.Sin(2*math.Pi*f*t) * (1 + math.Cos(2*math.Pi*float64(3+k+number)*t)) / 2
		}
		wave[i] = float32(math.Round(v*(1<<15)) / (1 << 15))
	}
	return wave
}

// judged returns the logits of the source for the prompt with rows of clips.
func (p *soundPrompt) judged(ctx context.Context, s *Subject, rows []float32) ([]float32, error) {
	h, err := s.Source.Hearing.Hidden(ctx, p.tokens, s.Package.Config.AudioPad, rows)
	if err != nil {
		return nil, err
	}
	logits := make([]float32, len(p.tokens)*s.Source.Model.Vocab)
	return logits, s.Source.Reference.Logits(ctx, logits, h)
}

// heard returns what an encoder makes of the clips.
func (p *soundPrompt) heard(ctx context.Context, ear *runtime.Ear) (list []runtime.Picture, rows []float32, err error) {
	for _, f := range p.features {
		x, err := ear.Features(ctx, f)
		if err != nil {
			return nil, nil, err
		}
		list, rows = append(list, x), append(rows, x.Rows...)
	}
	if len(rows) != len(p.rows) {
		return nil, nil, fmt.Errorf("the encoder makes %d values of clips, the source %d", len(rows), len(p.rows))
	}
	return list, rows, nil
}

// divergence is that of a session that is given rows.
func (p *soundPrompt) divergence(ctx context.Context, s *Subject, sess *runtime.Session, heard []runtime.Picture) (float64, error) {
	sess.Reset()
	sess.Show(heard...)
	got, err := sess.Forward(ctx, p.tokens)
	if err != nil {
		return 0, err
	}
	if len(got) != len(p.logits) {
		return 0, fmt.Errorf("the graph computes %d logits for %d tokens, the source %d", len(got), len(p.tokens), len(p.logits))
	}
	kl, _ := compareLogits(p.logits, got, s.Source.Model.Vocab, s.Options.Threads)
	return kl, nil
}

// shipped returns the divergence of the package as it is, and the distance of its rows.
func (p *soundPrompt) shipped(ctx context.Context, s *Subject, mode backend.Mode) (kl, distance float64, err error) {
	ear, err := runtime.NewEar(s.Package, cpu.Backend{}, runtime.Options{
		Mode: mode, DynamicOption: s.Package.Config.DynamicOption, Threads: s.Options.Threads, CacheBytes: s.Options.Memory / sessionShare,
	})
	if err != nil {
		return 0, 0, err
	}
	heard, rows, err := p.heard(ctx, ear)
	if err != nil {
		return 0, 0, err
	}
	sess, err := s.session(mode)
	if err != nil {
		return 0, 0, err
	}
	kl, err = p.divergence(ctx, s, sess, heard)
	return kl, distanceOf(p.rows, rows), err
}

// library is the divergence of the source with the engine's features from the source with the library's.
func (p *soundPrompt) library(ctx context.Context, s *Subject) (float64, error) {
	var all []float32
	for _, wave := range p.waves {
		features, err := sound.LibraryWhisper(wave)
		if err != nil {
			return 0, err
		}
		rows, err := s.Source.Hearing.Rows(ctx, features)
		if err != nil {
			return 0, err
		}
		all = append(all, rows...)
	}
	logits, err := p.judged(ctx, s, all)
	if err != nil {
		return 0, err
	}
	kl, _ := compareLogits(logits, p.logits, s.Source.Model.Vocab, s.Options.Threads)
	return kl, nil
}
