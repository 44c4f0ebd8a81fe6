package quant

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Method is one entry of a recipe's list of methods. Its exported fields are its options; the constructor in the table sets
// the defaults, so a zero value never means "default". A method is a [Quantizer], a [Folder], a [Rotator], the [Distill] of
// scales, or several of them.
type Method interface {
	// Name is the word of the recipe.
	Name() string
	// Needs returns what the method, with its options, reads besides the rows that it encodes.
	Needs() Needs
	// Closeness returns the guarantee of the method for stored weights; a method that chooses no codes states how it changes
	// floats.
	Closeness() Closeness
	// Validate rejects options that make no sense.
	Validate() error
}

// Needs orders the inputs of methods; each includes those before it.
type Needs int

const (
	// Nothing but the rows: a model can be read once, from start to end.
	Nothing Needs = iota
	// Model is all of the float weights, before anything is written.
	Model
	// Text is statistics of the inputs of every op on a calibration text.
	Text
	// Gradients are derivatives of the model's outputs on that text.
	Gradients
)

// Quantizer chooses codes, scales and zero terms.
type Quantizer interface {
	Method
	// Prepare does the work that all rows of all matrices with the same inputs and the same spec share. cols is the number
	// of columns; in holds the statistics of the inputs, and is nil for a method that needs no text. in may be shared
	// and must not be changed. threads bounds the parallelism of Prepare itself.
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
	// Fold chooses a positive scale for every channel of a site and measures its effect; the zero value leaves the site
	// alone. q is the quantizer that will encode the consumers; threads bounds the parallelism, not the result.
	Fold(s *Site, q Quantizer, threads int) (Scaling, error)
}

// Rotator rotates the coordinates in which a model computes, without changing the result.
type Rotator interface {
	Method
	// Admits reports whether q may encode rotated weights.
	Admits(q Quantizer) bool
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
	"awq": {
		"fold scales of channels, a power of the size of their inputs, from norms and matrices into the matrices that follow",
		func() Method { return NewAWQ() },
	},
	"distill": {
		"tune scales and norms of the finished model towards the outputs of the float model, by gradient descent",
		func() Method { return NewDistill() },
	},
	"gptq": {
		"error feedback between columns on searched grids, then refitting and descent; needs calibration",
		func() Method { return NewGPTQ() },
	},
	"hqq": {
		"move the zero term and scale of every block until errors cancel, from RTN's grid; no data, for comparison",
		func() Method { return NewHQQ() },
	},
	"omniquant": {
		"learn scales of channels, and the clipping of every block, by gradient descent through the stored grid",
		func() Method { return NewOmniQuant() },
	},
	"rotation": {
		"rotate the residual stream and the values of attention; only with gptq, and only where the head has a table of its own",
		func() Method { return NewRotation() },
	},
	"rtn": {
		"round to the nearest point of the grid that a block spans; no data",
		func() Method { return RTN{} },
	},
	"search": {
		"search scale and zero term of every block for the least weighted squared error",
		func() Method { return NewSearch() },
	},
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

// MethodDoc returns a sentence about a method.
func MethodDoc(name string) string { return methods[name].doc }

// quantizers names those quantizers, with their default options, for which suit returns true: "hqq, rtn or search".
func quantizers(suit func(Quantizer) bool) string {
	var names []string
	for _, name := range Methods() {
		if q, ok := methods[name].new().(Quantizer); ok && suit(q) {
			names = append(names, name)
		}
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return strings.Join(names, "")
}

// WithoutModel lists the quantizers that need only rows, for messages.
func WithoutModel() string { return quantizers(func(q Quantizer) bool { return q.Needs() == Nothing }) }

// NewMethod returns the method called name with its default options.
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

// NewChain sorts methods into their places. It rejects a list that cannot be applied: no quantizer or two, a folding after
// the quantizer, a rotation with anything but a quantizer that it admits, the same method twice.
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
				return nil, fmt.Errorf("%s must come first", m.Name())
			}
			c.Rotator = r
		}
		if c.Tuner != nil {
			return nil, fmt.Errorf("%s must come after %s", c.Tuner.Name(), m.Name())
		}
		if t, ok := m.(*Distill); ok {
			if c.Quantizer == nil {
				return nil, fmt.Errorf("%s must come after a method that chooses codes", t.Name())
			}
			c.Tuner = t
		}
		f, folds := m.(Folder)
		q, quantizes := m.(Quantizer)
		if folds {
			if c.Quantizer != nil {
				return nil, fmt.Errorf("%s must come before %s", m.Name(), c.Quantizer.Name())
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
	if c.Rotator != nil && (len(c.Folders) > 0 || !c.Rotator.Admits(c.Quantizer)) {
		return nil, fmt.Errorf("%s removes outlier channels, so the only method that may follow it is %s", c.Rotator.Name(), quantizers(c.Rotator.Admits))
	}
	return c, nil
}

// Needs returns the most that any method of the chain needs.
func (c *Chain) Needs() Needs {
	n := c.Quantizer.Needs()
	for _, f := range c.Folders {
		n = max(n, f.Needs())
	}
	if c.Rotator != nil {
		n = max(n, c.Rotator.Needs())
	}
	if c.Tuner != nil {
		n = max(n, c.Tuner.Needs())
	}
	return n
}

// Untuned returns the methods of list without tuning, which affects all ways to store a matrix equally.
func Untuned(list []Method) []Method {
	return slices.DeleteFunc(slices.Clone(list), func(m Method) bool {
		_, tunes := m.(*Distill)
		return tunes
	})
}
