package estimate

import (
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/quant"
)

// Measuring is what the work of measuring sensitivities depends on, other than the model and the text.
type Measuring struct {
	// Options and Lookups are the numbers of specs for a matrix, and for the embedding table.
	Options, Lookups int
	// Groups are the first layers of what is measured together, see calibrate.Groups; the number of layers stands for the head.
	Groups []int
}

// Measurement is the work of the steps of calibrate.Measure.
type Measurement struct {
	// Gradients is that of the backward pass, Options that of the estimates for all options, Table that of the embedding table,
	// and Groups that of the measured divergences.
	Gradients, Options, Table, Groups effort.Work
}

// Total is the work of all steps.
func (m *Measurement) Total() effort.Work {
	return m.Gradients.Plus(m.Options, m.Table, m.Groups)
}

const (
	// fisherTokens and groupTokens are how much text provides the gradients, and how much of the probe groups are measured on.
	fisherTokens, groupTokens = 4096, 3072
	// lookupRows is about how many rows of the embedding table are compared.
	lookupRows = 200
)

// windows is how many windows of length tokens have so many, but at most most.
func windows(tokens, length, most int) int { return min(most, (tokens+length-1)/length) }

// Sensitivities is the work of measuring how much the storage of every matrix matters.
func (c *Calibration) Sensitivities(d *arch.Decoder, m Measuring) *Measurement {
	q := c.Chain.Quantizer
	if x, ok := q.(interface{ Quick() quant.Quantizer }); ok {
		q = x.Quick()
	}
	x := &Measurement{Options: c.walk(d, 1, false)}
	t := effort.Text{Windows: windows(fisherTokens, c.Length, c.Windows), Length: c.Length}
	// The tally of a backward pass with a visitor counts the gradients of weights, although only those of outputs are squared here.
	x.Gradients = t.Layers(d, 0).Plus(t.Logits(d, LogitFunctions).Times(2), t.Backward(d, 0, true),
		Moments(1, d.Hidden, false).Times(2*t.Tokens()))
	c.allSites(d, func(s effort.Site) {
		x.Options = x.Options.Plus(Prepare(q, s.Cols(), false))
		for _, l := range s.Linears {
			if rows := l.Weight.Rows; c.Bits(l.Weight.Tensor) != 16 {
				x.Options = x.Options.Plus(OptionErrors(q, sampled(rows, s.Share < 1), s.Cols(), m.Options), OptionErrors(q, rows, s.Cols(), 1))
			}
		}
	})

	probe := effort.Text{Windows: windows(groupTokens, c.Length, c.Probe), Length: c.Length}
	compare := probe.Logits(d, LogitFunctions).Times(2)
	float := probe.Layers(d, 0)
	x.Table = Prepare(q, d.Hidden, false).Plus(OptionErrors(q, lookupRows, d.Hidden, m.Lookups), Encode(q, d.Vocab, d.Hidden, false),
		float.Times(2), compare)
	x.Groups = float // up to the groups
	for _, from := range m.Groups {
		x.Groups = x.Groups.Plus(probe.Layers(d, from), compare)
	}
	return x
}

// OptionErrors is the work of encoding rows in some ways and taking the errors of their outputs.
func OptionErrors(q quant.Quantizer, rows, cols, options int) effort.Work {
	return Encode(q, rows, cols, false).Plus(OutputError(rows, cols).Times(.5)).Times(float64(options))
}

// sampled is the number of rows whose options are compared, see calibrate.
func sampled(rows int, expert bool) int {
	if expert {
		return min(rows, 8)
	}
	return min(rows, max(32, min(rows/16, 64)))
}
