package stage

import (
	"errors"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/quant"
)

// Values of quantize.import; keep if absent.
const (
	importKeep       = "keep"
	importRequantize = "requantize"
)

// ImportError reports a checkpoint whose codes cannot be stored unchanged.
type ImportError struct {
	// Err is the reason for the first such matrix; Others counts further ones.
	Err    error
	Others int
}

func (e *ImportError) Error() string {
	if e.Others == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v; and %d more matrices", e.Err, e.Others)
}

func (e *ImportError) Unwrap() error { return e.Err }

// keeps reports whether matrices that are codes in src are stored unchanged.
func (q *Quantize) keeps(src *source.Source) bool {
	return src.Quantized != nil && len(src.Quantized.Names()) > 0 && q.Import != importRequantize
}

// kept are the specs of matrices that are stored as in the checkpoint; nil if there are none.
func (q *Quantize) kept(r *Run, src *source.Source, policy *quant.Policy) (map[string]quant.Spec, error) {
	if !q.keeps(src) {
		return nil, nil
	}
	scale, err := q.scale(r)
	if err != nil {
		return nil, err
	}
	specs, err := src.Quantized.Specs(scale)
	if err != nil {
		e := &ImportError{Err: err}
		if list, ok := errors.AsType[interface {
			error
			Unwrap() []error
		}](err); ok && len(list.Unwrap()) > 0 {
			e.Err, e.Others = list.Unwrap()[0], len(list.Unwrap())-1
		}
		return nil, e
	}
	for i, o := range policy.Overrides {
		for _, name := range src.Quantized.Names() {
			if o.Match.MatchString(name) {
				return nil, r.Recipe.Stages["quantize"].Errorf(fmt.Sprintf("overrides[%d].match", i),
					"%q matches %s, which is stored as in the checkpoint; match fewer matrices, or set quantize.import to requantize", o.Match, name)
			}
		}
	}
	return specs, nil
}
