package stage

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/recipes"
)

// effective is the recipe with all options as JSON, except those that do not affect the package's bytes: limits, signing,
// publishing places, servers of the hub, and the directories of this machine that contain the files.
func effective(r recipes.Recipe, o Options) (json.RawMessage, error) {
	if r.Model.Path != "" {
		dir, err := filepath.Abs(r.Resolve(r.Model.Path))
		if err != nil {
			return nil, err
		}
		r.Model.Path = filepath.Base(dir)
	}
	r.Limits, r.Variants, r.Stages = recipes.DefaultLimits(), nil, nil
	for _, path := range []*string{&o.Rewrite.Template.Path, &o.Verify.Perplexity.Text.Path, &o.Verify.Golden} {
		*path = lastElement(*path)
	}
	o.Calibrate.Data = slices.Clone(o.Calibrate.Data)
	for i := range o.Calibrate.Data {
		d := &o.Calibrate.Data[i]
		d.Path = lastElement(d.Path)
	}
	for _, m := range []**CalibrationMedia{&o.Calibrate.Pictures, &o.Calibrate.Sounds} {
		if *m != nil {
			x := **m
			x.Path = lastElement(x.Path)
			*m = &x
		}
	}
	sections := o.BySection()
	delete(sections, "publish")
	delete(sections, "sign")
	delete(sections, "fetch")
	kept := map[string]any{}
	if r.Model.Repo != "" && o.Fetch.Source == hub.ModelScope {
		kept["source"] = o.Fetch.Source
	}
	if !o.Fetch.Keep && o.Verify.Enabled { // the possible checks depend on it
		kept["keep"] = false
	}
	if len(kept) > 0 {
		sections["fetch"] = kept
	}
	if o.Rewrite == (Rewrite{}) {
		delete(sections, "rewrite")
	}
	if !o.Quantize.calibrated() {
		delete(sections, "calibrate")
	}
	return recipes.EffectiveJSON(&r, sections)
}

// recorded is the effective recipe for the package of a source: with the commit that it was made from, because a branch or tag
// may move, and with the text of a template, because its file is not in the package.
func (r *Run) recorded(src *source.Source) (json.RawMessage, error) {
	recipe, o := *r.Recipe, r.Options
	if src.Revision != "" {
		recipe.Model.Revision = src.Revision
	}
	if c := &o.Rewrite.Template; c.Path != "" {
		c.Path, c.Text = "", src.Facts.ChatTemplate
	}
	return effective(recipe, o)
}

func lastElement(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(filepath.FromSlash(path))
}
