package stage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/recipes"
)

// PackageName returns the name for a package of a repository or a directory: its last element in lower case, followed by a
// suffix such as -int4 unless bits is 0.
func PackageName(model string, bits int) string {
	model = filepath.ToSlash(model)
	if abs, err := filepath.Abs(model); err == nil && strings.HasPrefix(model, ".") {
		model = filepath.ToSlash(abs)
	}
	model = strings.TrimRight(model, "/")
	model = strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, model)
	const most = 100 // leaves room below the limit of a recipe's name
	name = strings.Trim(name[:min(len(name), most)], "._-")
	if name == "" {
		name = "model"
	}
	switch bits {
	case 0:
		return name
	case 16:
		return name + "-f16"
	}
	return fmt.Sprintf("%s-int%d", name, bits)
}

// InitRecipe returns a recipe with comments: the defaults, and other values where the checkpoint needs them. src is nil if
// the model is not on this machine.
func InitRecipe(m recipes.Model, src *source.Source) ([]byte, error) {
	q, v := NewQuantize(), NewVerify()
	of := m.Repo
	if m.Path != "" {
		of = m.Path
		if src != nil { // the path may end in ".."
			of = src.Dir
		}
	}
	name := PackageName(of, q.Bits)
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	p("# llmexport run makes this package; llmexport plan shows it first.")
	block, why := fmt.Sprint(q.Block.Cols), "columns that share a scale: 32, 64, 128, row or auto"
	if src != nil {
		d := src.Decoder
		tied := "separate head"
		if d.Tied {
			tied = "head tied to the embedding"
		}
		p("# %s (%s): %d layers, hidden %d, vocabulary %d, %d positions, %s.",
			d.ModelType, d.Architecture, len(d.Layers), d.Hidden, d.Vocab, d.MaxPositions, tied)
		if src.Quantized != nil && len(src.Quantized.Names()) > 0 {
			p("# Matrices that are %s codes are stored as they are; quantize.import: requantize rounds them again.", src.Quantized.Method())
		}
		if cols := indivisible(d, q.Block.Cols); cols != 0 {
			block, why = "auto", fmt.Sprintf("rows of %d columns do not divide into blocks of %d; also 32, 64, 128 or row", cols, q.Block.Cols)
		}
		v.Perplexity.Window = min(v.Perplexity.Window, d.MaxPositions)
	}
	p("version: %d", recipes.Version)
	p("name: %s", name)
	p("model:")
	if m.Path != "" {
		p("  path: %-16s # directory of the checkpoint, relative to this file", word(m.Path))
	} else {
		p("  repo: %s", word(m.Repo))
		p("  revision: %-12s # a commit, tag or branch; resolved to a commit, which is recorded", word(cmp.Or(m.Revision, "main")))
	}
	template := "{path: chat.jinja} # replaces the checkpoint's chat template"
	if src != nil && len(src.Facts.Templates) > 1 {
		names := slices.Sorted(maps.Keys(src.Facts.Templates))
		template = fmt.Sprintf("{name: %s} # one of the checkpoint's chat templates: %s", word(names[len(names)-1]), strings.Join(names, ", "))
	}
	t, l := recipes.DefaultTarget(), recipes.DefaultLimits()
	p("target:")
	p("  engine: %-14q # oldest MNN that must run the package", t.Engine)
	p("  backends: [%s]", strings.Join(t.Backends, ", "))
	p("limits:                  # of the export, on this machine")
	p("  memory: %s", l.Memory)
	p("  threads: %d             # 0 is one for each core", l.Threads)
	p("# rewrite:")
	p("#   template: %s", template)
	p("#   simplify: true in it uses a plain template if the engine cannot render the model's")
	p("quantize:")
	p("  method: %s", q.Method[0].Name())
	p("  bits: %d                # 16, 8, 6, 5, 4, 3 or 2; embedding table and head take 8", q.Bits)
	p("  block: %-15s # %s", block, why)
	p("  symmetric: %t", q.Symmetric)
	p("  # overrides:           # the last pattern that matches a tensor's name wins")
	p("  #   - {match: \"down_proj\", bits: 8}")
	p("verify:                  # limits follow from the bits unless they are set here")
	p("  enabled: %t", v.Enabled)
	p("  perplexity: {text: builtin, window: %d, windows: %d}", v.Perplexity.Window, v.Perplexity.Windows)
	p("  # kl: {max: 0.1}")
	p("publish:")
	p("  - dir: dist/%s", name)
	p("# variants:              # more packages of the same source, each a patch of this recipe")
	p("#   - {name: %s, quantize: {bits: 8}, publish: [{dir: dist/%[1]s}]}", PackageName(of, 8))

	text := []byte(b.String())
	if _, err := recipes.Load(text, "recipe", Sections()); err != nil {
		return nil, err
	}
	return text, nil
}

// indivisible returns the columns of the first linear layer whose rows do not divide into blocks of the given length; 0 if
// there is none.
func indivisible(d *arch.Decoder, block int) int {
	found := 0
	d.Linears(func(_ string, l *arch.Linear) {
		if found == 0 && l.Weight.Cols%block != 0 {
			found = l.Weight.Cols
		}
	})
	return found
}

var plainWord = regexp.MustCompile(`^(\.{1,2}/)*[A-Za-z][A-Za-z0-9_./-]*$`)

// word quotes a string for YAML if necessary.
func word(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
	default:
		if plainWord.MatchString(s) {
			return s
		}
	}
	q, err := json.Marshal(s)
	if err != nil {
		panic("internal error: " + err.Error()) // strings always marshal
	}
	return string(q)
}
