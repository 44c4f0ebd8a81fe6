package stage

import (
	"context"
	"errors"
	"os"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/verify"
)

// VerifyPackage checks the package in dir. It compares it with the checkpoint directory unless that is empty; the checkpoint
// must be the one that the manifest names: see [source.OtherError]. Files are compared with the manifest before they are
// parsed. Packages of other tools, which have no manifest, get the checks that need none.
func VerifyPackage(ctx context.Context, dir, checkpoint string, o verify.Options) (*verify.Result, error) {
	m, err := manifestOf(dir)
	if err != nil {
		return nil, err
	}
	if m != nil { // before any of them is parsed
		err := m.VerifyFiles(ctx, dir)
		if is := (*manifest.DamagedError)(nil); errors.As(err, &is) {
			return verify.Damaged(err), nil
		}
		if err != nil {
			return nil, err
		}
	}
	var src *source.Source
	if checkpoint != "" {
		if err := source.CheckManifests(ctx, checkpoint, m); err != nil {
			return nil, err
		}
		if src, err = source.Open(ctx, source.Origin{Dir: checkpoint}, ignoredKeys(m)); err != nil {
			return nil, err
		}
		defer src.Close()
		if err := takeRecorded(m, src); err != nil {
			return nil, err
		}
	}
	q := quantizeOf(m)
	s, err := assemble.Subject(dir, m, src, q.closeness(), q != nil && src != nil && q.keeps(src), o)
	if err != nil {
		return nil, err
	}
	defer s.Package.Close()
	s.Compared = m != nil
	if s.Fits, err = packagedFits(dir); err != nil {
		return nil, err
	}
	return verify.Run(ctx, s)
}

// recipeOf is the recipe in a manifest; nil if there is none or it is of another version of this program.
func recipeOf(m *manifest.Manifest) *recipes.Recipe {
	if m == nil || m.Recipe == nil {
		return nil
	}
	r, err := recipes.Load(m.Recipe, manifest.FileName, Sections())
	if err != nil {
		return nil
	}
	return r
}

// quantizeOf are the options of the recipe in a manifest; nil if there is none.
func quantizeOf(m *manifest.Manifest) *Quantize {
	q := NewQuantize()
	if r := recipeOf(m); r == nil || r.Stages[q.String()].Decode(q) != nil {
		return nil
	}
	return q
}

// manifestOf is nil for a package without a manifest.
func manifestOf(dir string) (*manifest.Manifest, error) {
	m, err := manifest.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return m, err
}

// OptionsOf returns the windows and limits of a package's own recipe, or the defaults for the mean width of its matrices, or
// those of 16 bits, the strictest, if neither is known. Files that the recipe names are not in the package: the built-in text
// replaces its text.
func OptionsOf(m *manifest.Manifest, limits pipeline.Limits) (verify.Options, error) {
	v, r, bits := NewVerify(), &recipes.Recipe{}, bodyBits(nil)
	if m != nil {
		bits = bodyBits(m.Tensors)
	}
	if m != nil && m.Recipe != nil {
		var err error
		if r, err = recipes.Load(m.Recipe, manifest.FileName, Sections()); err != nil {
			return verify.Options{}, err
		}
		if err := r.Stages[v.String()].Decode(v); err != nil {
			return verify.Options{}, err
		}
	}
	v.Perplexity.Text, v.Golden = verify.Text{}, ""
	return v.options(r, &limits, bits)
}

// bodyBits is the mean width of the matrices, rounded down to one that has limits; 16 if there are no matrices. In a mixed
// package a matrix in 16 bits counts as 8, which is hardly noisier, so that a few small ones do not tighten the limits.
func bodyBits(list []manifest.Tensor) int {
	sum, count, coded := 0, 0, false
	for _, t := range list {
		if s, err := quant.ParseSpec(t.Spec); err == nil { // else a norm
			sum, count, coded = sum+min(s.Bits, 8), count+1, coded || s.Bits != 16
		}
	}
	for _, bits := range []int{8, 6, 5, 4, 3, 2} {
		if coded && sum >= bits*count {
			return bits
		}
	}
	return 16
}

func ignoredKeys(m *manifest.Manifest) []string {
	if m == nil {
		return nil
	}
	return m.IgnoredKeys
}
