package quant

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Method is one entry of a recipe's list of methods. Its exported fields are its options; their zero values are never
// meant, the constructor in the table sets the defaults. A method is a [Quantizer], a [Folder], a [Rotator], the [Distill] of
// scales, or several of them.
type Method interface {
	// Name is the word of the recipe.
	Name() string
	// Calibrated says whether the method, with its options, needs statistics of activations.
	Calibrated() bool
	// Closeness is what the method promises of stored weights; of one that chooses no codes, what it does to floats.
	Closeness() Closeness
	// Validate refuses options that make no sense.
	Validate() error
}

// Quantizer chooses codes, scales and zero terms.
type Quantizer interface {
	Method
	// Prepare does what all rows of all matrices with the same inputs and the same spec share. cols is the number of
	// columns; in is what calibration kept of the inputs, and nil for a method that is not calibrated. in may be shared
	// and must not be changed. Threads bound the work of Prepare itself.
	Prepare(s Spec, cols int, in *Stats, threads int) (Encoder, error)
}

// Encoder encodes rows. Implementations are safe for concurrent use, and give the same result for the same rows however
// a matrix is cut into groups of rows, on every machine.
type Encoder interface {
	// Encode fills dst. Weights that are not finite are tensor.ErrCorrupt; scales that the spec's type cannot hold are
	// tensor.ErrUnsupported.
	Encode(dst Blocks, w Matrix) error
}

// Encode encodes all rows of a matrix on one thread.
func Encode(q Quantizer, dst Blocks, w Matrix, s Spec, in *Stats) error {
	e, err := q.Prepare(s, w.Cols, in, 1)
	if err != nil {
		return err
	}
	return e.Encode(dst, w)
}

// Folder rewrites float weights without changing what the model computes, so that they are easier to store.
type Folder interface {
	Method
	// Fold chooses a positive scale for every channel of a site, and says how good it is; the zero value leaves the site
	// alone. q is the quantizer that will encode the consumers; threads bound the work and do not change the result.
	Fold(s *Site, q Quantizer, threads int) (Scaling, error)
}

// Rotator turns the coordinates in which a model computes, without changing what it computes. Weights in turned
// coordinates have lost the channels that foldings and weighted searches live on, so only gptq may follow.
type Rotator interface {
	Method
	// Stream is the rotation of a residual stream of n channels, Head that of the values of an attention head of n
	// channels; nil is none.
	Stream(n int) *Hadamard
	Head(n int) *Hadamard
}

// entry is a line of the table of methods.
type entry struct {
	doc string
	new func() Method
}

// methods is the table of methods.
var methods = map[string]entry{
	"awq":       {"fold scales of channels, a power of the size of their inputs, from norms and matrices into the matrices behind them", func() Method { return NewAWQ() }},
	"distill":   {"tune scales and norms of the finished model towards the outputs of the float model, by gradient descent", func() Method { return NewDistill() }},
	"gptq":      {"error feedback between columns on searched grids, then refitting and descent; needs calibration", func() Method { return NewGPTQ() }},
	"hqq":       {"move the zero term and scale of every block until errors cancel, from RTN's grid; no data, for comparison", func() Method { return NewHQQ() }},
	"omniquant": {"learn scales of channels, and the clipping of every block, by gradient descent through the stored grid", func() Method { return NewOmniQuant() }},
	"rotation":  {"rotate the residual stream and the values of attention; only with gptq, and only where the head has a table of its own", func() Method { return NewRotation() }},
	"rtn":       {"round to the nearest point of the grid that a block spans; no data", func() Method { return RTN{} }},
	"search":    {"search scale and zero term of every block for the least weighted squared error", func() Method { return NewSearch() }},
}

// Methods lists the known method names, sorted.
func Methods() []string {
	var names []string
	for n := range methods {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// MethodDoc is a sentence about a method.
func MethodDoc(name string) string { return methods[name].doc }

// NewMethod returns the method of a name with its default options.
func NewMethod(name string) (Method, error) {
	e, ok := methods[name]
	if !ok {
		return nil, fmt.Errorf("unknown method %q; known: %s", name, strings.Join(Methods(), ", "))
	}
	return e.new(), nil
}

// Chain is a list of methods in the order in which they are applied: a rotation or foldings, one quantizer, tuning.
type Chain struct {
	// Rotator is nil without a rotation.
	Rotator   Rotator
	Folders   []Folder
	Quantizer Quantizer
	// Tuner is nil without tuning.
	Tuner *Distill
}

// NewChain sorts methods into their places. A list that cannot be applied is refused: no quantizer or two, a folding
// behind the quantizer, a rotation that is not alone before gptq, the same method twice.
func NewChain(list []Method) (*Chain, error) {
	c := &Chain{}
	var seen []string
	for _, m := range list {
		if slices.Contains(seen, m.Name()) {
			return nil, fmt.Errorf("%s is named twice", m.Name())
		}
		seen = append(seen, m.Name())
		if err := m.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name(), err)
		}
		if r, ok := m.(Rotator); ok {
			if len(seen) > 1 {
				return nil, fmt.Errorf("%s must stand first, and only gptq behind it", m.Name())
			}
			c.Rotator = r
		}
		if c.Tuner != nil {
			return nil, fmt.Errorf("%s must stand behind %s", c.Tuner.Name(), m.Name())
		}
		if t, ok := m.(*Distill); ok {
			if c.Quantizer == nil {
				return nil, fmt.Errorf("%s must stand behind a method that chooses codes", t.Name())
			}
			c.Tuner = t
		}
		f, folds := m.(Folder)
		q, quantizes := m.(Quantizer)
		if folds {
			if c.Quantizer != nil {
				return nil, fmt.Errorf("%s must stand before %s", m.Name(), c.Quantizer.Name())
			}
			c.Folders = append(c.Folders, f)
		}
		if quantizes {
			if c.Quantizer != nil {
				return nil, fmt.Errorf("%s and %s both choose codes; name one", c.Quantizer.Name(), m.Name())
			}
			c.Quantizer = q
		}
	}
	if c.Quantizer == nil {
		return nil, fmt.Errorf("no method of the list chooses codes; add one such as gptq, search or rtn")
	}
	if c.Rotator != nil && (len(c.Folders) > 0 || c.Quantizer.Name() != "gptq") {
		return nil, fmt.Errorf("%s leaves no channels that stand out, so only gptq gains from it: name gptq and nothing else behind it", c.Rotator.Name())
	}
	return c, nil
}

// Calibrated says whether any method needs statistics of activations.
func (c *Chain) Calibrated() bool {
	for _, f := range c.Folders {
		if f.Calibrated() {
			return true
		}
	}
	return c.Rotator != nil || c.Tuner != nil || c.Quantizer.Calibrated()
}
