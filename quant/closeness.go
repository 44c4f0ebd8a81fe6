package quant

// Closeness is the guarantee of a method for the weights that it stores. The check weights verifies it.
type Closeness struct {
	// Weights states how close they are to the floats given to the quantizer, and Floats how those were changed before.
	Weights Nearness
	Floats  Rewriting
	// Factor bounds the error of a block of Near weights.
	Factor float64
}

// Nearness orders promises of stored weights, the strongest first.
type Nearness int

const (
	// Rounded weights each lie within [Spec.Bound].
	Rounded Nearness = iota
	// Near weights have in every block at most Factor times the squared error that rounding to nearest leaves there.
	Near
	// Fitted weights were chosen for the outputs of the op: where inputs are small the weights may have any value. The
	// only measure of their quality is the error that the method itself reports on the calibration text.
	Fitted
)

// Rewriting orders the changes that methods make to float weights before encoding, the smallest first.
type Rewriting int

const (
	// Kept floats are the checkpoint's.
	Kept Rewriting = iota
	// Rewritten floats belong to a model that computes the same with other numbers.
	Rewritten
	// Turned floats are rewritten in other coordinates, and so are the states between layers.
	Turned
)

// searchedFactor is for methods that keep the grid of rounding to nearest unless they find a better one: it allows for
// float32 and the order of sums.
const searchedFactor = 1.001

// Closeness returns the combined guarantee of all methods of a chain.
func (c *Chain) Closeness() Closeness {
	x := c.Quantizer.Closeness()
	join := func(m Method) {
		y := m.Closeness()
		x.Weights, x.Floats, x.Factor = max(x.Weights, y.Weights), max(x.Floats, y.Floats), max(x.Factor, y.Factor)
	}
	for _, f := range c.Folders {
		join(f)
	}
	if c.Rotator != nil {
		join(c.Rotator)
	}
	if c.Tuner != nil {
		join(c.Tuner)
	}
	return x
}

// Rounding computes the error of rounding rows to nearest. It is not safe for concurrent use.
type Rounding struct {
	spec   Spec
	blocks Blocks
	hat    []float32
	errors []float64
}

// NewRounding returns a Rounding for rows of cols weights.
func NewRounding(s Spec, cols int) (*Rounding, error) {
	l, err := s.Layout(1, cols)
	if err != nil {
		return nil, err
	}
	return &Rounding{spec: s, blocks: NewBlocks(l, s), hat: make([]float32, cols), errors: make([]float64, l.Blocks)}, nil
}

// Errors returns the squared error of every block of a row; they are valid until the next call.
func (r *Rounding) Errors(row []float32) ([]float64, error) {
	if err := (nearest{r.spec}).Encode(r.blocks, Matrix{Rows: 1, Cols: len(row), Data: row}); err != nil {
		return nil, err
	}
	r.blocks.Dequantize(r.hat, r.spec)
	BlockErrors(r.errors, r.hat, row)
	return r.errors, nil
}

// BlockErrors sums the squared differences of two rows over len(dst) blocks.
func BlockErrors(dst []float64, a, b []float32) {
	width := len(a) / len(dst)
	for i := range dst {
		dst[i] = 0
		for j := i * width; j < (i+1)*width; j++ {
			d := float64(a[j]) - float64(b[j])
			dst[i] += float64(d * d)
		}
	}
}
