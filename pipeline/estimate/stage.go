package estimate

import (
	"cmp"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/quant"
)

// Calibration is what the work of calibrated methods depends on, other than the model.
type Calibration struct {
	Chain *quant.Chain
	// Windows of Length tokens each are the text; Probe windows more measure divergences.
	Windows, Length, Probe int
	// Sequential is that of calibrate.Scheme.
	Sequential bool
	// Bits returns the bits of a matrix; those of 16 are not encoded.
	Bits func(tensor string) int
	// Layers are those whose matrices are encoded, in order, without the table and the head; nil stands for all of the model.
	Layers []int
	// GradientWindows is that of calibrate.Options.
	GradientWindows int
}

const (
	// tableWindows is how many windows give the statistics of the embedding table.
	tableWindows = 32
	// LogitFunctions is about how many values a draw from a model, or one side of a comparison, computes for every logit.
	LogitFunctions = 3
	// bytesStored is the size of a weight in a checkpoint.
	bytesStored = 2
)

// weights is the number of weights of all linear layers of a model, without the head.
func weights(d *arch.Decoder) (n float64) {
	d.Linears(func(_ string, l *arch.Linear) {
		if l != &d.Head {
			n += float64(l.Weight.Rows) * float64(l.Weight.Cols)
		}
	})
	return n
}

func lookup(d *arch.Decoder) float64 { return float64(d.Vocab) * float64(d.Hidden) }

// OwnText is the work of drawing windows of length tokens from a model, batch of them at a time. Every token of a batch reads all
// weights, and the keys and values of the tokens before it.
func OwnText(d *arch.Decoder, windows, length, batch int) (w effort.Work) {
	if windows == 0 {
		return w
	}
	t := effort.Text{Windows: windows, Length: length}
	batches := float64((windows + batch - 1) / max(1, batch))
	for _, l := range d.Layers {
		for _, b := range l {
			linears := t.Linears(b.Block)
			linears[effort.Memory] = 0
			for _, s := range effort.Sites(b.Block) {
				hit := 1.0
				if s.Share < 1 {
					hit = min(1, s.Share*float64(batch))
				}
				for _, x := range s.Linears {
					linears[effort.Memory] += hit * 4 * float64(x.Weight.Rows) * float64(x.Weight.Cols) * batches * float64(length)
				}
			}
			w = w.Plus(linears)
			w = w.Plus(drawn(t, b.Block))
		}
	}
	head := t.Logits(d, LogitFunctions)
	head[effort.Memory] = 4 * lookup(d) * batches * float64(length)
	return w.Plus(head)
}

// drawn is the part of a block other than its linear layers, for text that is drawn token by token.
func drawn(t effort.Text, b arch.Block) (w effort.Work) {
	past := func(width int) effort.Work {
		return effort.Of(effort.Memory, t.Tokens()*float64(t.Length)/2*4*float64(width))
	}
	switch b := b.(type) {
	case *arch.Attention:
		return past(2 * b.KVHeads * b.HeadDim)
	case *arch.LatentAttention:
		return past(b.Heads * (b.NopeDim + b.RopeDim + b.ValueDim))
	case *arch.Sum:
		for _, x := range b.Branches {
			w = w.Plus(drawn(t, x.Block))
		}
		return w
	}
	return t.Mixing(b)
}

// gradients is the text that gives gradients while codes are chosen.
func (c *Calibration) gradients() effort.Text {
	return effort.Text{Windows: min(c.Windows, cmp.Or(c.GradientWindows, tableWindows)), Length: c.Length}
}

// tableStatistics is the work of the moments that the embedding table is encoded with, or of the gradients for some layers.
func (c *Calibration) tableStatistics(d *arch.Decoder) effort.Work {
	t := c.gradients()
	lowest := 0
	if c.Layers != nil {
		if !Couples(c.Chain.Quantizer) {
			return effort.Work{}
		}
		lowest = c.Layers[0]
	}
	w := t.Layers(d, 0).Plus(t.Logits(d, LogitFunctions).Times(2), t.Backward(d, lowest, false))
	if c.Layers != nil {
		return w
	}
	return w.Plus(Moments(1, d.Hidden, false).Times(2 * t.Tokens()))
}

// encode is the work of encoding the matrices that read a vector of cols elements, all but that of rows that make up for each other's
// errors.
func (c *Calibration) encode(linears []*arch.Linear, cols int, cross bool, coupled func(l *arch.Linear) bool) (w effort.Work) {
	w = Prepare(c.Chain.Quantizer, cols, cross)
	for _, l := range linears {
		if c.Bits(l.Weight.Tensor) == 16 {
			continue
		}
		if !coupled(l) {
			w = w.Plus(Encode(c.Chain.Quantizer, l.Weight.Rows, l.Weight.Cols, cross))
		}
		if c.Chain.Quantizer.Needs() != quant.Nothing {
			w = w.Plus(OutputError(l.Weight.Rows, l.Weight.Cols))
		}
	}
	return w
}

// couples reports whether rows of a matrix that reads a vector make up for each other's errors.
func (c *Calibration) couples(d *arch.Decoder, s effort.Site, l *arch.Linear) bool {
	return Couples(c.Chain.Quantizer) && s.Share >= 1 && l != &d.Head && c.Bits(l.Weight.Tensor) != 16
}

// couple is the work of encoding rows of the matrices that read a vector such that they make up for each other's errors.
func (c *Calibration) couple(d *arch.Decoder, s effort.Site, cross bool) (w effort.Work) {
	tokens := int(c.gradients().Tokens())
	for _, l := range s.Linears {
		if rows := l.Weight.Rows; c.couples(d, s, l) {
			w = w.Plus(Refine(c.Chain.Quantizer, rows, l.Weight.Cols, cross),
				Moments(tokens, coupled(rows), false).Times(float64(rows)/float64(coupled(rows))))
		}
	}
	return w
}

// encoded are the layers whose matrices are encoded.
func (c *Calibration) encoded(d *arch.Decoder) []arch.Layer {
	if c.Layers == nil {
		return d.Layers
	}
	var list []arch.Layer
	for _, i := range c.Layers {
		list = append(list, d.Layers[i])
	}
	return list
}

// allSites calls f with every vector that a linear layer reads whose weights are encoded, the head's last.
func (c *Calibration) allSites(d *arch.Decoder, f func(s effort.Site)) {
	for _, l := range c.encoded(d) {
		for _, b := range l {
			for _, s := range effort.Sites(b.Block) {
				f(s)
			}
		}
	}
	if c.Layers == nil && !d.Tied {
		f(effort.Site{Linears: []*arch.Linear{&d.Head}, Share: 1})
	}
}

// added calls f with the linear layers that make up for what the states lack, see calibrate.Quantize.
func (c *Calibration) added(d *arch.Decoder, f func(l *arch.Linear)) {
	for _, layer := range c.encoded(d) {
		for i, b := range layer {
			sites := effort.Sites(b.Block)
			switch b.Block.(type) {
			case *arch.Experts, *arch.Sum:
				continue
			}
			if !b.Plain() || b.Parallel || i+1 < len(layer) && layer[i+1].Parallel {
				continue
			}
			if last := sites[len(sites)-1]; len(last.Linears) == 1 && last.Share == 1 && last.Linears[0].Weight.Rows == d.Width() {
				f(last.Linears[0])
			}
		}
	}
}

// Moments is the work of adding the products of vectors of cols elements to their moments, and with cross those of two streams.
func Moments(vectors, cols int, cross bool) (w effort.Work) {
	n := float64(vectors) * float64(cols) * float64(cols)
	w[effort.Product] = n // half of x xᵀ
	if cross {
		w[effort.Product] += 2 * n
	}
	return w
}

// walk is the work of taking the text through a model and gathering the moments of all inputs, in streams streams.
func (c *Calibration) walk(d *arch.Decoder, streams int, cross bool) effort.Work {
	t := effort.Text{Windows: c.Windows, Length: c.Length}
	w := t.Layers(d, 0).Times(float64(streams))
	w[effort.Disk] += float64(streams) * bytesStored * weights(d)
	c.allSites(d, func(s effort.Site) {
		mine := t.Tokens() * s.Share
		lent := max(0, min(t.Tokens(), float64(s.Cols()))-mine) // to an expert that few tokens are routed to
		w = w.Plus(Moments(1, s.Cols(), cross).Times(mine + lent))
		if len(s.Linears) > 1 { // what its down projection reads follows from these
			for _, l := range s.Linears {
				w[effort.Product] += float64(streams) * 2 * lent * float64(l.Weight.Rows) * float64(l.Weight.Cols)
			}
		}
	})
	return w
}

// Codes is the work of choosing the codes of all matrices, tuning them, and measuring the divergence on the probe.
func (c *Calibration) Codes(d *arch.Decoder) effort.Work {
	return c.Encoding(d).Plus(c.Tuning(d), c.Divergence(d))
}

// Encoding is the work of choosing the codes of all matrices.
func (c *Calibration) Encoding(d *arch.Decoder) (w effort.Work) {
	watches := c.Chain.Quantizer.Needs() != quant.Nothing
	cross := watches && c.Sequential && crosses(c.Chain.Quantizer)
	if len(c.Chain.Folders) > 0 {
		w = c.walk(d, 1, false)
		c.allSites(d, func(s effort.Site) {
			for _, l := range s.Linears {
				w = w.Plus(Fold(c.Chain.Quantizer, l.Weight.Rows, l.Weight.Cols).Times(float64(len(c.Chain.Folders))))
			}
		})
	}
	if c.Chain.Rotator != nil {
		w[effort.Disk] += 2 * 4 * weights(d)
	}
	if watches {
		w = w.Plus(c.tableStatistics(d))
		streams := 1
		if cross {
			streams = 2
		}
		w = w.Plus(c.walk(d, streams, cross))
	}
	if c.Layers == nil {
		w = w.Plus(c.encode([]*arch.Linear{{Weight: d.Embedding}}, d.Hidden, false, func(*arch.Linear) bool { return false }))
	}
	c.allSites(d, func(s effort.Site) {
		w = w.Plus(c.encode(s.Linears, s.Cols(), cross, func(l *arch.Linear) bool { return c.couples(d, s, l) }), c.couple(d, s, cross))
	})
	if cross {
		c.added(d, func(l *arch.Linear) {
			if c.Bits(l.Weight.Tensor) != 16 {
				rows, cols := l.Weight.Rows, l.Weight.Cols
				w = w.Plus(Residue(c.Windows*c.Length, rows, cols), Aim(rows, cols))
			}
		})
	}
	w[effort.Disk] += weights(d) + lookup(d)
	return w
}

// Tuning is the work of all steps of a tuner: passes of both models, and a backward pass with the gradients of all weights.
func (c *Calibration) Tuning(d *arch.Decoder) effort.Work {
	if c.Chain.Tuner == nil {
		return effort.Work{}
	}
	t := effort.Text{Windows: max(1, c.Chain.Tuner.Tokens/c.Length), Length: c.Length}
	w := t.Layers(d, 0).Times(2).Plus(t.Backward(d, 0, true), t.Logits(d, LogitFunctions).Times(2), t.Logits(d, 0).Times(2),
		Rescale(1).Times(weights(d)+lookup(d)))
	return w.Times(float64(c.Chain.Tuner.Steps))
}

// Divergence is the work of comparing the encoded model with the float model on the probe.
func (c *Calibration) Divergence(d *arch.Decoder) effort.Work {
	t := effort.Text{Windows: c.Probe, Length: c.Length}
	w := t.Layers(d, 0).Plus(t.Logits(d, LogitFunctions)).Times(2)
	w[effort.Disk] += 2 * bytesStored * weights(d)
	return w
}

// Weights is the work of writing size bytes of weights from a checkpoint of stored bytes; q, if not nil, chooses the codes of
// the matrices of d now.
func Weights(d *arch.Decoder, q quant.Quantizer, stored, size int64) effort.Work {
	w := effort.Of(effort.Disk, float64(stored+size))
	if q == nil {
		return w
	}
	encode := func(rows, cols int) { w = w.Plus(Encode(q, rows, cols, false)) }
	encode(d.Vocab, d.Hidden)
	d.Linears(func(_ string, l *arch.Linear) {
		if l != &d.Head || !d.Tied {
			encode(l.Weight.Rows, l.Weight.Cols)
		}
	})
	return w
}

const (
	// verifySessions is how many ways a package runs in a verification, next to the source: in float and in int8.
	verifySessions = 2
	// comparedOps is about how many values are computed for every logit of a session, and for every weight that is compared.
	comparedOps = 4
	// halfOps is about how many operations a product takes where half precision is emulated.
	halfOps = 2
	// tokenizerOps is about what comparing tokenizers and templates takes.
	tokenizerOps = 1e9
)

// Verification is the work of the parts of checking a package: a comparison of all weights, one of tokenizers and templates, and windows
// of text.
type Verification struct{ Weights, Tokenizer, Windows effort.Work }

// Verifying is the work of checking a package of size bytes against a checkpoint of stored bytes, with windows of length tokens through
// the source and through two sessions, decode tokens more one by one, and half tokens in half precision.
func Verifying(d *arch.Decoder, windows, length, decode, half int, stored, size int64) (v Verification) {
	t := effort.Text{Windows: windows, Length: length}
	all := weights(d) + lookup(d)
	v.Weights[effort.Element], v.Weights[effort.Disk] = comparedOps*all, float64(stored+size)
	v.Tokenizer[effort.Scalar] = tokenizerOps
	v.Windows = t.Layers(d, 0).Plus(t.Logits(d, comparedOps)).Times(1 + verifySessions)
	v.Windows[effort.Memory] += verifySessions * float64(decode) * 4 * all
	products := effort.Text{Windows: 1, Length: half}
	v.Windows[effort.Scalar] += halfOps * products.Layers(d, 0).Plus(products.Logits(d, 0))[effort.Product]
	return v
}
