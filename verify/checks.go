package verify

import (
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
)

// Checks holds the options of the checks that have any. Its fields are keys of a recipe's section verify.
type Checks struct {
	Perplexity Perplexity `json:"perplexity" jsonschema_description:"How and on what perplexity is measured."`
	KL         KL         `json:"kl" jsonschema_description:"Largest mean KL divergence from the source, in nats."`
	Layers     Layers     `json:"layers" jsonschema_description:"Largest relative error of the hidden state after a layer."`
	Weights    Weights    `json:"weights" jsonschema_description:"Largest error of an op's outputs that a method which watches the model may report for a matrix, relative and squared."`
	Tokenizer  Tokenizer  `json:"tokenizer" jsonschema_description:"Shares of strings whose ids may differ in the engine."`
	Vectors    Vectors    `json:"vectors,omitzero" jsonschema_description:"Largest distance of the vectors or scores of texts from the source's, for models that make such."`
	Golden     string     `json:"golden,omitempty" jsonschema_description:"JSON file with outputs that were recorded elsewhere and must be reproduced."`
}

// All returns the checks of every package in the order in which they run: cheap and fundamental ones first.
func (c *Checks) All() []Check {
	return []Check{
		layout{},
		coverage{},
		&c.Weights,
		&c.Tokenizer,
		templateParity{},
		graph{},
		&c.Layers,
		sourceSane{},
		&c.Perplexity,
		&c.KL,
		decode{},
		positions{},
		activations{},
		golden{},
	}
}

// of returns the checks of a package: those of what its graph computes, and of parts that it has, in the order in which they run.
func (c *Checks) of(p *runtime.Package) []Check {
	if p.Task() != runtime.Generate {
		return []Check{layout{}, coverage{}, &c.Weights, &c.Tokenizer, graph{}, &c.Layers, &c.Vectors, activations{}}
	}
	list := c.All()
	if p.Visual() != nil {
		list = append(list, pictures{})
	}
	if p.Audio() != nil {
		list = append(list, sounds{})
	}
	return list
}

// Known returns every check once.
func (c *Checks) Known() []Check { return append(c.All(), pictures{}, sounds{}, &c.Vectors) }

// NewChecks returns the default options.
func NewChecks() Checks {
	return Checks{
		Perplexity: Perplexity{Window: 512, Windows: 4, Decode: 32},
		Tokenizer:  Tokenizer{MaxPlain: 0, MaxHard: 0.03},
	}
}

// Names lists the checks of All in order.
func Names() []string {
	var n []string
	for _, c := range new(Checks).All() {
		n = append(n, c.String())
	}
	return n
}

// Hint returns the hint for a check that failed, and "" if there is none of its name.
func Hint(failed manifest.Check) string {
	for _, c := range new(Checks).Known() {
		if c.String() == failed.Name {
			return c.Hint(failed.Value)
		}
	}
	return ""
}

// closer returns the advice for a package whose divergence of kl nats is too large, of which the weights alone cause float: only
// what the weights cause can be mended by storing them better.
func closer(kl, float float64, limit string) string {
	if kl > 2*float {
		return "int8 activations of the engine cause most of the difference, so more bits help little; if channels of the model stand out, " +
			"quantize.method: [awq, gptq] scales them down; " + limit + " of the recipe is the limit"
	}
	return "use more bits, smaller blocks or the method gptq to come closer to the source; " + limit + " of the recipe is the limit"
}
