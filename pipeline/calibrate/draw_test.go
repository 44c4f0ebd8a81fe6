package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// Draws come as often as their probabilities say.
func TestDraw(t *testing.T) {
	row := make([]float32, 700)
	for i := range row {
		row[i] = -30
	}
	row[0], row[256], row[699], row[300] = 1, 2, 1.5, -2
	random := rand.NewPCG(1, 2)
	const draws = 20000
	counts := make([]float64, len(row))
	for range draws {
		token, err := next(row, fraction(random))
		check(t, err)
		counts[token]++
	}
	var sum float64
	p := make([]float64, len(row))
	for i, x := range row {
		p[i] = math.Exp(float64(x))
		sum += p[i]
	}
	for i := range p {
		want := p[i] / sum * draws
		if math.Abs(counts[i]-want) > 4*math.Sqrt(want)+1 {
			t.Errorf("token %d came %v times, expected %v", i, counts[i], want)
		}
	}
	row[5] = float32(math.NaN())
	if _, err := next(row, .5); err == nil {
		t.Error("a draw from NaN")
	}
}

// drawnByLoop is how a label is drawn, one token after the other: the token at u of the softmax of logits, and the sum of the squared
// probabilities.
func drawnByLoop(logits []float32, u float64) (token int32, collision float64) {
	norm := kernel.LogSumExp(logits)
	token = int32(len(logits) - 1)
	var sum float64
	for i, v := range logits {
		p := kernel.Exp(float64(v) - norm)
		collision += float64(p * p)
		if before := sum; before <= u && u < before+p {
			token = int32(i)
		}
		sum += p
	}
	return token, collision
}

// Labels and the sums of squares have the bits of a loop over the vocabulary, for any number of rows at a time and of threads, and the
// gradients those of the softmax of each row.
func TestLabels(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	r, all := rand.New(rand.NewPCG(3, 4)), d.Vocab
	for _, vocab := range []int{1, 2, 7, 255, 256, 257, 1000, 2051} {
		d.Vocab = vocab
		for _, rows := range []int{1, 2, 3, 4, 5, 9, 30} {
			logits, places := make([]float32, rows*vocab), make([]float64, rows)
			for i := range logits {
				logits[i] = float32(r.NormFloat64() * []float64{1, 5, 500}[i/vocab%3])
			}
			for i := range places {
				places[i] = []float64{r.Float64(), 0, 1 - 0x1p-53, r.Float64(), r.Float64()}[i%5]
				if i%7 == 6 { // the first token hardly has a probability
					logits[i*vocab] = -800
				}
			}
			want, wanted := make([]int32, rows), make([]float64, rows)
			gradients := slices.Clone(logits)
			for i := range places {
				row := gradients[i*vocab : (i+1)*vocab]
				want[i], wanted[i] = drawnByLoop(row, places[i])
				kernel.Softmax(row)
				row[want[i]]--
			}
			for _, threads := range []int{1, 3, 16} {
				d.Vocab = all
				m, err := forward.New(d, src, threads)
				check(t, err)
				head, err := m.Head()
				check(t, err)
				d.Vocab = vocab
				x := labels{head: head, at: places, spreads: make([]float64, rows)}
				got, drawn := slices.Clone(logits), make([]int32, rows)
				m.CrossEntropyGradient(got, func(first int, dst []int32, logits []float32, norms []float64) {
					x.choose(first, dst, logits, norms)
					copy(drawn[first:], dst)
				})
				if !slices.Equal(drawn, want) || !slices.Equal(got, gradients) {
					t.Fatalf("%d rows of %d, %d threads: labels %v, want %v", rows, vocab, threads, drawn, want)
				}
				for i, spread := range x.spreads {
					if spread != 1-wanted[i] {
						t.Fatalf("%d rows of %d: spread %d is %x, want %x", rows, vocab, i, spread, 1-wanted[i])
					}
				}
			}
		}
	}
}

// The spread of bounded logits is the sum of p (1-p) d².
func TestSpread(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	m, err := forward.New(d, src, 1)
	check(t, err)
	head, err := m.Head()
	check(t, err)
	d.LogitCap = 4
	r := rand.New(rand.NewPCG(5, 6))
	row := make([]float32, 600)
	for i := range row {
		row[i] = float32(4 * math.Tanh(r.NormFloat64()))
	}
	norm, want := kernel.LogSumExp(row), 0.0
	for _, v := range row {
		p, slope := kernel.Exp(float64(v)-norm), float64(float32(1-float64(v)*float64(v)/16))
		want += p * (1 - p) * slope * slope
	}
	if got := spread(head, row, norm); math.Abs(got-want) > 1e-9*want {
		t.Errorf("spread %v, want %v", got, want)
	}
}
