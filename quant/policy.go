package quant

import (
	"fmt"
	"regexp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Policy chooses the spec of every matrix of a model.
type Policy struct {
	// Default is the spec of the body.
	Default Spec
	// Table is the spec of the embedding table and of the head.
	Table Spec
	// Tower is the spec of the matrices of towers.
	Tower Spec
	// AutoBlock lets a matrix whose columns do not divide into blocks take the largest block that does. Matrices of towers always may.
	AutoBlock bool
	Overrides []Override
	// Fixed gives the specs of single matrices by name, and takes precedence over all other fields: an
	// allocation to a budget.
	Fixed map[string]Spec
}

// Override changes the spec of matrices whose checkpoint tensor matches; nil fields change nothing.
type Override struct {
	Match     *regexp.Regexp // unanchored, RE2
	Bits      *int
	Block     *int
	Symmetric *bool
	Scale     *tensor.DType
}

// Choice is the spec of one matrix and, where AutoBlock changed it, the requested block.
type Choice struct {
	Spec Spec
	// AutoFrom is the block length of the policy if another one was chosen, and 0 otherwise.
	AutoFrom int
	// Override is the index of the override that won, or -1.
	Override int
}

// Role is the purpose of a matrix.
type Role int

// The roles.
const (
	Body  Role = iota
	Table      // embedding and head
	Fine       // small and sensitive: routers, gates. They are Half unless overridden.
	Tower      // a matrix of an encoder of other input
)

// Choose picks the spec of a matrix of cols columns that is stored from the checkpoint tensor name. The
// last override that matches wins over earlier ones, field by field.
func (p *Policy) Choose(name string, role Role, rows, cols int) (Choice, error) {
	c := Choice{Spec: p.Default, Override: -1}
	if s, ok := p.Fixed[name]; ok {
		c.Spec = s
		_, err := s.Layout(rows, cols)
		return c, err
	}
	switch role {
	case Table:
		c.Spec = p.Table
	case Fine:
		c.Spec = Half
	case Tower:
		c.Spec = p.Tower
	}
	for i, o := range p.Overrides {
		if !o.Match.MatchString(name) {
			continue
		}
		c.Override = i
		o.apply(&c.Spec, p.Default)
	}
	if err := c.Spec.Validate(); err != nil {
		return Choice{}, fmt.Errorf("%s: %w", name, err)
	}
	if b := c.Spec.Block; (p.AutoBlock || role == Tower) && b != WholeRow && cols%b != 0 {
		c.AutoFrom = b
		c.Spec.Block = WholeRow
		for _, smaller := range []int{64, 32} {
			if smaller < b && cols%smaller == 0 {
				c.Spec.Block = smaller
				break
			}
		}
	}
	if _, err := c.Spec.Layout(rows, cols); err != nil {
		return Choice{}, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

func (o *Override) apply(s *Spec, def Spec) {
	if o.Bits != nil {
		if *o.Bits == 16 {
			*s = Half
		} else {
			if s.Bits == 16 { // from halves to codes: unset fields come from the body
				scale := s.Scale
				*s = def
				if def.Bits == 16 {
					*s = Spec{Block: 64, Scale: scale}
				}
			}
			s.Bits = *o.Bits
		}
	}
	if o.Block != nil {
		s.Block = *o.Block
	}
	if o.Symmetric != nil {
		s.Symmetric = *o.Symmetric
	}
	if o.Scale != nil {
		s.Scale = *o.Scale
	}
}
