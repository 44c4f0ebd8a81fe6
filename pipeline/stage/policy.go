package stage

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// policy turns options into the policy of the planner; errors are positioned in the recipe.
func (q *Quantize) policy(r *Run) (*quant.Policy, error) {
	sec := r.Recipe.Stages["quantize"]
	if _, err := q.chain(); err != nil {
		return nil, sec.Errorf("method", "%v", err)
	}
	scale, err := q.scale(r)
	if err != nil {
		return nil, err
	}
	body := quant.Spec{Bits: q.Bits, Block: q.Block.cols(), Symmetric: q.Symmetric, Scale: scale}
	if q.Bits == 16 {
		body = quant.Half
	}
	if err := body.Validate(); err != nil {
		key := "bits"
		if (quant.Spec{Bits: q.Bits, Block: 64, Scale: scale}).Validate() == nil {
			key = "block"
		}
		return nil, sec.Errorf(key, "%s", strings.TrimPrefix(plainError(err), key+" "))
	}
	table := body
	if q.Bits != 16 {
		table.Bits = 8
	}
	tower := table
	// With a budget, the allocation chooses the blocks; the provisional plan needs any that fit.
	p := &quant.Policy{Default: body, Table: table, Tower: tower, AutoBlock: q.Block.Auto || q.Budget != nil}
	for i, o := range q.Overrides {
		at := fmt.Sprintf("overrides[%d]", i)
		re, err := regexp.Compile(o.Match)
		if err != nil || o.Match == "" {
			return nil, sec.Errorf(at+".match", "is not a pattern: %v", errors.Join(err, emptyPattern(o.Match)))
		}
		over := quant.Override{Match: re, Bits: o.Bits, Symmetric: o.Symmetric}
		if o.Bits != nil && (quant.Spec{Bits: *o.Bits, Scale: scale}).Validate() != nil {
			return nil, sec.Errorf(at+".bits", "must be one of 2, 3, 4, 5, 6, 8, 16, not %d", *o.Bits)
		}
		if o.Block != nil {
			if o.Block.Auto {
				return nil, sec.Errorf(at+".block", "auto is for quantize.block")
			}
			b := o.Block.cols()
			if err := (quant.Spec{Bits: 4, Block: b, Scale: scale}).Validate(); err != nil {
				return nil, sec.Errorf(at+".block", "%s", strings.TrimPrefix(plainError(err), "block "))
			}
			over.Block = &b
		}
		if o.Scale != "" {
			s, err := scaleType(o.Scale, r.target)
			if err != nil {
				return nil, sec.Errorf(at+".scale", "%v", err)
			}
			over.Scale = &s
		}
		p.Overrides = append(p.Overrides, over)
	}
	return p, nil
}

func emptyPattern(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	return nil
}

// plainError returns the text of an error without its sentinel, for messages that are positioned in a recipe.
func plainError(err error) string {
	text := strings.TrimSuffix(err.Error(), ": "+tensor.ErrUnsupported.Error())
	return strings.TrimSuffix(text, ": "+tensor.ErrCorrupt.Error())
}

func scaleType(s string, t lower.Target) (tensor.DType, error) {
	switch {
	case s == "fp32":
		return tensor.F32, nil
	case s != "fp16":
		return 0, fmt.Errorf("must be fp16 or fp32, not %q", s)
	case t.Scale != tensor.F16:
		return 0, fmt.Errorf("engine %s misreads fp16 scales; use fp32 or a newer engine", t.Engine)
	}
	return tensor.F16, nil
}

// scale is the type of scales.
func (q *Quantize) scale(r *Run) (tensor.DType, error) {
	if q.Scale == "" {
		return r.target.Scale, nil
	}
	scale, err := scaleType(q.Scale, r.target)
	if err != nil {
		return 0, r.Recipe.Stages["quantize"].Errorf("scale", "%v", err)
	}
	return scale, nil
}

// checkSpecs rejects storage forms that a backend of the target does not compute correctly, as far as the recipe alone
// determines them. A budget chooses only among forms that the backends compute correctly.
func (q *Quantize) checkSpecs(r *Run, p *quant.Policy) error {
	f := backends.Features{Classic: r.Recipe.Target.Form != recipes.FormC4}
	if q.Budget == nil {
		f.AddLinear(backends.LinearOf(p.Default))
		f.AddLinear(backends.LinearOf(p.Table))
	}
	if i, bad := r.devices.Refused(&f); bad != nil {
		return r.Recipe.Errorf(fmt.Sprintf("target.backends[%d]", i), "%s: %s", bad, bad.Change())
	}
	return nil
}
