package verify

import (
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// candidate is a package in an evaluation.
type candidate struct {
	*Evaluation
	float, int8 *runtime.Session
	decoding    decoding
}

// newCandidate opens the sessions of a package; tokens from position decodeFrom of the first window on are also fed one by one.
func newCandidate(s *Subject, decodeFrom int) (*candidate, error) {
	c := &candidate{Evaluation: &Evaluation{}, decoding: decoding{from: decodeFrom}}
	var err error
	if c.float, err = s.session(backend.Float); err != nil {
		return nil, err
	}
	if c.int8, err = s.session(backend.Int8); err != nil {
		return nil, err
	}
	c.float.Peaks = func(op *mnn.Op, peak float32) { c.activation(op.Name, peak) }
	return c, nil
}

// activation records the largest value of an op's output.
func (c *candidate) activation(op string, peak float32) {
	if a := float64(peak); a > c.LargestActivation {
		c.LargestActivation, c.LargestOp = a, op
	}
}

// begin starts a window.
func (c *candidate) begin() {
	c.Float.begin()
	c.Int8.begin()
	c.Source.begin()
}

// add adds the scores of positions; compared reports whether there was a reference.
func (c *candidate) add(list []scores, compared bool) {
	for _, v := range list {
		c.activation("logits", v.peak)
		if compared {
			c.Source.add(v.source)
		}
		if !v.finite {
			c.NotFinite++
			continue
		}
		c.Float.add(v.float, compared)
		c.Int8.add(v.int8, compared)
	}
}
