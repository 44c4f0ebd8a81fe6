// Package stage holds the stages of a run, one file each, and the order in which they run. A stage is the struct of its
// options, which [New] decodes from the section of its name in a recipe; a [Run] has the options of all of them, the
// checkpoint that they have open, and the artifacts that they have made.
package stage

import (
	"github.com/llmexport/llmexport/pipeline"
)

// Options are those of all stages.
type Options struct {
	Fetch     Fetch
	Rewrite   Rewrite
	Calibrate Calibrate
	Allocate  Allocate // has none
	Quantize  Quantize
	Verify    Verify
	Sign      Sign
	Publish   Publish
}

// Defaults are the options of a recipe that states none.
func Defaults() *Options {
	return &Options{Fetch: *NewFetch(), Calibrate: *NewCalibrate(), Quantize: *NewQuantize(), Verify: *NewVerify()}
}

// Stages lists the stages in the order in which they run.
func (o *Options) Stages() []pipeline.Stage[*Run] {
	return []pipeline.Stage[*Run]{&o.Fetch, &o.Rewrite, &o.Calibrate, &o.Allocate, &o.Quantize, &o.Verify, &o.Sign, &o.Publish}
}

// BySection maps the sections of recipes to their options.
func (o *Options) BySection() map[string]any {
	all := map[string]any{}
	for _, s := range o.Stages() {
		if s != pipeline.Stage[*Run](&o.Allocate) {
			all[s.String()] = s
		}
	}
	return all
}

// Sections lists the names of the recipe sections that stages own.
func Sections() []string {
	var names []string
	o := Defaults()
	sections := o.BySection()
	for _, s := range o.Stages() {
		if sections[s.String()] != nil {
			names = append(names, s.String())
		}
	}
	return names
}
