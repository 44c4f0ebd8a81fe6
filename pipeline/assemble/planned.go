package assemble

import (
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/quant"
)

// Files of a package, in addition to those of its parts.
const (
	TokenizerFile = "tokenizer.mtok"
	ConfigFile    = "config.json"
	LLMConfigFile = "llm_config.json"
)

// Planned is the layout of a package, made before a weight is read.
type Planned struct {
	Source *source.Source
	Target lower.Target
	Plan   *plan.Plan
	// GraphBytes is the size of the files of the linked graphs.
	GraphBytes int64
	// Allocation is the choice of specs for a budget; nil without one.
	Allocation *Allocation
	// Kept are the specs of matrices whose codes and scales are those of the checkpoint; nil if there are none.
	Kept map[string]quant.Spec
	// Shown reports, by name, the parts whose matrices were watched while they were shown something, so that a budget chooses for them.
	Shown map[string]bool
	Devices
}

// Allocation is a choice of specs for a budget.
type Allocation struct {
	// Specs by tensor.
	Specs map[string]string `json:"specs"`
	// KL is the predicted divergence from the source in nats, Probe the number of tokens that it was measured on.
	KL    float64 `json:"kl"`
	Probe int64   `json:"probe"`
	// Bytes of all files that the engine opens.
	Bytes int64 `json:"bytes"`
}

// Fixed returns the specs as a [quant.Policy] takes them.
func (a *Allocation) Fixed() (map[string]quant.Spec, error) {
	specs := map[string]quant.Spec{}
	for name, text := range a.Specs {
		s, err := quant.ParseSpec(text)
		if err != nil {
			return nil, err
		}
		specs[name] = s
	}
	return specs, nil
}

// FileBytes is the largest size of all files that the engine opens, with everything that verification may add to
// config.json; inputs is the directory of the tokenizer.
func (p *Planned) FileBytes(inputs string) (int64, error) {
	st, err := os.Stat(filepath.Join(inputs, TokenizerFile))
	if err != nil {
		return 0, err
	}
	return p.FilesWith(st.Size())
}

// FilesWith is FileBytes for a tokenizer file of a size.
func (p *Planned) FilesWith(tokenizer int64) (int64, error) {
	llm, err := llmConfig(p)
	if err != nil {
		return 0, err
	}
	run := p.runConfig()
	run.DynamicOption = 2
	run.atLeast("normal")
	config, err := run.json(digest.Of(nil))
	if err != nil {
		return 0, err
	}
	return p.Plan.Bytes() + p.GraphBytes + int64(len(llm)+len(config)) + tokenizer, nil
}

// DeviceContext is the number of positions that estimates of device memory include.
const DeviceContext = 2048

// Memory estimates the memory that a device needs to run the package.
func (p *Planned) Memory() plan.Memory { return p.Plan.Memory() }

// RunsHalf reports whether a verification runs the package in half precision.
func (p *Planned) RunsHalf() bool { return p.runConfig().Precision == precisions[0] }

// Retries reports whether a verification may be followed by a second one with dynamic_option 2, as it usually is.
func (p *Planned) Retries() bool { return p.runConfig().DynamicOption == 0 }
