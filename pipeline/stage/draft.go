package stage

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
)

// Draft is a recipe with comments that [Drafting.Draft] has written.
type Draft struct {
	Name string // of the package
	Text []byte
	// Rule says how the size was chosen.
	Rule string
	// Estimate is what a run would take on this machine; nil if the checkpoint was not there to look at.
	Estimate *Estimate
}

// Drafting is what a user says about the recipe to write.
type Drafting struct {
	Model recipes.Model
	// Source is the open checkpoint; nil if it is not on this machine.
	Source *source.Source
	// Size is the most bytes of all files that the engine opens; 0 stands for those of 4 bits in blocks of 64.
	Size recipes.Size
	// Device is the kind of device that the package is for; nil stands for any CPU.
	Device *backends.Device
	Limits pipeline.Limits
}

// drafted holds the decisions of a draft.
type drafted struct {
	*Drafting
	name, of string

	backends     []string
	refused      []string // comments on backends of the device that are left out
	block, why   string   // quantize.block, where the default does not fit
	bits         int
	method       string
	reason       string // why the method is not gptq
	tuned        bool   // whether distill follows gptq
	budget, rule string
	memory       recipes.Size
}

// Packages of less than this share of the bytes of 4 bits in blocks of 64 gain from distill, see docs/quality.md. Models for which
// it needs more memory than tunedMemory would take hours.
const (
	tunedBelow  = 0.9
	tunedMemory = 4 << 30
)

// Draft writes a recipe for the best package that a run can make of the checkpoint: gptq with a budget where it can be used, and distill
// for small models in few bits; 8 bits for a model that turns texts into vectors, where neither can be. The recipe loads, and its stages
// accept it. A size or a device that no package of the model fits is an error.
func (o Drafting) Draft() (*Draft, error) {
	d := &drafted{Drafting: &o, of: o.Model.Repo, backends: recipes.DefaultTarget().Backends, method: "gptq", memory: recipes.DefaultLimits().Memory}
	if d.bits = NewQuantize().Bits; d.pooled() {
		d.bits = 8
	}
	if o.Model.Path != "" {
		if d.of = o.Model.Path; o.Source != nil { // the path may end in ".."
			d.of = o.Source.Dir
		}
	}
	d.name = PackageName(d.of, d.bits)
	if o.Device != nil {
		d.name = PackageName(d.of, 0) + "-" + o.Device.Name
	}
	if o.Size > 0 {
		if o.Device == nil {
			d.name = PackageName(d.of, 0)
		} else if int64(o.Size) > o.Device.Memory {
			return nil, &recipes.Error{Message: fmt.Sprintf("%s is more than an app on %s may take, %s (%s)", exactSize(o.Size), o.Device.Name,
				recipes.Size(o.Device.Memory), o.Device.Why)}
		}
		d.name += "-" + strings.ToLower(exactSize(o.Size))
		d.budget, d.rule = "bytes: "+exactSize(o.Size), "the size that init was given"
	}
	if o.Source == nil {
		d.unseen()
		r, err := d.load()
		if err != nil {
			return nil, err
		}
		return &Draft{Name: r.Recipe.Name, Text: d.text(), Rule: d.rule}, nil
	}
	return d.seen()
}

// pooled reports whether the model turns texts into vectors or scores.
func (d *drafted) pooled() bool { return d.Source != nil && d.Source.Decoder.Pooling != nil }

// unseen decides without the checkpoint.
func (d *drafted) unseen() {
	d.block, d.why = "auto", "64, or a length that divides the columns"
	if d.budget == "" {
		d.rule = "4 bits; init was not able to look at the model to choose a budget"
	}
	if d.Device != nil {
		d.backends = d.Device.Backends
	}
}

// seen decides with the checkpoint.
func (d *drafted) seen() (*Draft, error) {
	q := NewQuantize()
	if cols := indivisible(d.Source.Decoder, q.Block.Cols); cols != 0 {
		d.block, d.why = "auto", fmt.Sprintf("rows of %d columns do not divide into blocks of %d", cols, q.Block.Cols)
	}
	plain := *d
	plain.method, plain.budget = "rtn", ""
	r, err := plain.load()
	if err != nil {
		return nil, err
	}
	pl, err := r.Plan(d.Source, nil)
	if errors.Is(err, safetensors.ErrNoWeights) { // only the scales of its codes tell how they are stored
		d.method, d.reason = d.codes()
		return &Draft{Name: d.name, Text: d.text()}, nil
	}
	if err != nil {
		return nil, unplaced(err)
	}
	d.chooseBackends(r, pl)
	if err := d.chooseMethod(); err != nil {
		return nil, err
	}
	if d.method == "gptq" {
		if err := d.chooseBudget(pl); err != nil {
			return nil, err
		}
	}
	return d.finish()
}

// chooseBackends leaves out those of the device that compute the model wrongly.
func (d *drafted) chooseBackends(r *Run, pl *assemble.Planned) {
	if d.Device == nil {
		return
	}
	d.backends = nil
	f := pl.Features()
	for _, name := range d.Device.Backends {
		one, err := assemble.DevicesOf(recipes.Target{Backends: []string{name}}, r.target.Minimum)
		if err != nil {
			panic("internal error: " + err.Error())
		}
		if _, bad := one.Refused(&f); bad != nil {
			d.refused = append(d.refused, bad.String())
			continue
		}
		d.backends = append(d.backends, name)
	}
}

// chooseMethod takes gptq unless it cannot be used with the checkpoint.
func (d *drafted) chooseMethod() error {
	r, err := d.load()
	if err != nil {
		return err
	}
	err = r.Quantize.check(r, d.Source)
	if err == nil {
		return nil
	}
	if d.budget != "" { // the user wants a size
		return unplaced(err)
	}
	d.method, d.reason = "search", "gptq cannot be used with this model: "+strings.TrimPrefix(plainError(unplaced(err)), "quantize.method: ")
	if d.pooled() {
		d.reason = "gptq and budgets are for models that continue texts. At 8 bits the vectors of this one change little"
	}
	if r.Quantize.keeps(d.Source) {
		d.method, d.reason = d.codes()
	}
	return nil
}

// codes returns the method for a checkpoint of codes, and the reason.
func (d *drafted) codes() (method, reason string) {
	return "rtn", fmt.Sprintf("The matrices are %s codes, which are stored as they are", d.Source.Quantized.Method())
}

// chooseBudget takes the bytes of the default options, or what fits the device.
func (d *drafted) chooseBudget(pl *assemble.Planned) error {
	mtok, _, err := d.Source.Facts.MTOK(d.Source.Tokenizer, recipes.DefaultTarget().Engine)
	if err != nil {
		return err
	}
	files, err := pl.FilesWith(int64(len(mtok)))
	if err != nil {
		return err
	}
	if d.budget != "" {
		needs := calibrate.LeastTuning(d.Source.Decoder, NewCalibrate().Window, quant.NewDistill().Tokens)
		d.tuned = float64(d.Size) < tunedBelow*float64(files) && needs <= tunedMemory
		return nil
	}
	d.budget, d.rule = "bytes: "+shortSize(files), "the bytes of 4 bits in blocks of 64"
	if device := d.Device; device != nil && pl.Memory().Total(assemble.DeviceContext) > device.Memory {
		d.budget = "device_ram: " + recipes.Size(device.Memory).String()
		d.rule = fmt.Sprintf("what an app on %s may take, %s", device.Name, device.Why)
	}
	return nil
}

// finish checks the recipe as a whole, and estimates it.
func (d *drafted) finish() (*Draft, error) {
	r, err := d.load()
	if err != nil {
		return nil, err
	}
	pl, err := r.Plan(d.Source, nil)
	if err != nil {
		return nil, unplaced(err)
	}
	demands, err := r.Quantize.demands(r, d.Source)
	if err != nil {
		return nil, err
	}
	for _, x := range demands {
		const gib = 1 << 30
		d.memory = max(d.memory, recipes.Size((x.Bytes+gib-1)/gib*gib))
	}
	if r, err = d.load(); err != nil {
		return nil, err
	}
	e, err := r.Estimate(pl, entries[0])
	if err != nil {
		return nil, err
	}
	return &Draft{Name: r.Recipe.Name, Text: d.text(), Rule: d.rule, Estimate: e}, nil
}

// load reads the recipe back. Its errors are about what the user said, so they leave out places in the text.
func (d *drafted) load() (*Run, error) {
	r, err := recipes.Load(d.text(), "", Sections())
	if err == nil {
		var x *Run
		if x, err = New(r, d.Limits); err == nil {
			err = x.Quantize.Budget.validate(r.Stages["quantize"])
			return x, unplaced(err)
		}
	}
	return nil, unplaced(err)
}

// unplaced removes the place from an error of a recipe that nobody wrote.
func unplaced(err error) error {
	if e := (*recipes.Error)(nil); errors.As(err, &e) {
		return &recipes.Error{Message: e.Message}
	}
	return err
}

// exactSize prints a size in the decimal unit that people use for downloads, if that is exact.
func exactSize(n recipes.Size) string {
	for _, u := range []struct {
		name  string
		bytes recipes.Size
	}{{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}} {
		if n%u.bytes == 0 && n > 0 {
			return fmt.Sprintf("%d%s", n/u.bytes, u.name)
		}
	}
	return n.String()
}

// shortSize rounds up to three digits, in the decimal units of download sizes.
func shortSize(n int64) string {
	unit, name := int64(1e3), "KB"
	switch {
	case n >= 1e9:
		unit, name = 1e9, "GB"
	case n >= 1e6:
		unit, name = 1e6, "MB"
	}
	v := float64(n) / float64(unit)
	step := math.Pow(10, math.Floor(math.Log10(max(v, 1)))-2)
	return fmt.Sprintf("%.3g%s", math.Ceil(v/step-1e-9)*step, name)
}

// text writes the recipe.
func (d *drafted) text() []byte {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# yaml-language-server: $schema=%s", schemaURL())
	if d.Source != nil {
		m := d.Source.Decoder
		tied := "separate head"
		switch {
		case m.Pooling != nil:
			tied = "no head"
		case m.Tied:
			tied = "head tied to the embedding"
		}
		p("# %s (%s): %d layers, hidden %d, vocabulary %d, %d positions, %s.",
			m.ModelType, m.Architecture, len(m.Layers), m.Hidden, m.Vocab, m.MaxPositions, tied)
	}
	p("# llmexport plan shows size, time and memory of this package, llmexport run makes it. Any value can be left out.")
	p("version: %d", recipes.Version)
	p("name: %s", word(d.name))
	p("model:")
	if d.Model.Path != "" {
		p("  path: %-16s # directory of the checkpoint, relative to this file", word(d.Model.Path))
	} else {
		p("  repo: %s", word(d.Model.Repo))
		p("  revision: %-12s # a commit, tag or branch; resolved to a commit, which is recorded", word(cmp.Or(d.Model.Revision, "main")))
	}
	d.writeTarget(p)
	d.writeQuantize(p)
	p("limits:                  # of the run, on this machine")
	p("  memory: %s", d.memory)
	p("  threads: 0             # 0 is one for each core")
	if !d.pooled() { // which has no chat template
		d.writeRewrite(p)
	}
	d.writeVerify(p)
	p("publish:                 # also - hub: ORG/NAME, - oci: HOST/NAME:TAG, - s3: s3://BUCKET/PREFIX; all get it or none")
	p("  - dir: dist/%s", d.name)
	p("# variants:              # more packages of the same checkpoint, each a patch of this recipe")
	if other := 8; d.bits == other {
		p("#   - {name: %s, quantize: {bits: 16}, publish: [{dir: dist/%[1]s}]}", PackageName(d.of, 16))
	} else {
		p("#   - {name: %s, quantize: {bits: %d, budget: null}, publish: [{dir: dist/%[1]s}]}", PackageName(d.of, other), other)
	}
	return []byte(b.String())
}

func (d *drafted) writeTarget(p func(string, ...any)) {
	p("target:")
	p("  engine: %-14q # oldest MNN that must run the package", recipes.DefaultTarget().Engine)
	for _, x := range d.refused {
		p("  # left out: %s", strings.ReplaceAll(x, "\n", " "))
	}
	p("  backends: %-12s # that must compute it correctly: %s", "["+strings.Join(d.backends, ", ")+"]", strings.Join(recipes.Backends, ", "))
}

func (d *drafted) writeQuantize(p func(string, ...any)) {
	p("quantize:")
	if d.reason != "" {
		p("  # %s.", d.reason)
	} else {
		p("  # gptq runs the model on text of its own and lets later columns of a matrix make up for the errors of earlier ones:")
		p("  # the best quality for the bytes. search looks at the weights alone: much faster, not as good.")
	}
	if d.tuned {
		p("  # distill then moves scales and norms by gradient descent: 3 to 5 %% closer at this size, in two to three times the time.")
		p("  method: [%s, distill]", d.method)
	} else {
		p("  method: %s", d.method)
	}
	if d.budget != "" {
		p("  # Each matrix gets bits and a block of its own, so that the quality is best within the budget.")
		p("  # Here: %s. Less is smaller and worse; llmexport plan --measure predicts by how much.", d.rule)
		p("  budget: {%s}", d.budget)
		if d.block != "" {
			p("  block: %-15s # %s", d.block, d.why)
		}
	} else {
		q := NewQuantize()
		p("  bits: %d                # 16, 8, 6, 5, 4, 3 or 2; embedding table and head take 8", d.bits)
		block, why := fmt.Sprint(q.Block.Cols), "columns that share a scale: 32, 64, 128, row or auto"
		if d.block != "" {
			block, why = d.block, d.why
		}
		p("  block: %-15s # %s", block, why)
	}
	if d.Source != nil && d.Source.Quantized != nil && len(d.Source.Quantized.Names()) > 0 {
		p("  # import: requantize   # rounds the %s codes of the checkpoint again", d.Source.Quantized.Method())
	}
	example, better := "down_proj", 8
	if d.pooled() {
		example, better = "embed", 16
	}
	p("  # overrides:           # the last pattern that matches a tensor's name wins")
	p("  #   - {match: \"%s\", bits: %d}", example, better)
	if d.method == "gptq" {
		p("# calibrate:             # conversations like those of your users are better than the model's own text alone")
		p("#   data: [samples, {path: chats.jsonl, chat: true}]")
	}
}

func (d *drafted) writeVerify(p func(string, ...any)) {
	v := NewVerify()
	if d.Source != nil {
		v.Perplexity.Window = min(v.Perplexity.Window, d.Source.Decoder.MaxPositions)
	}
	if d.pooled() {
		p("# verify:                # vectors and scores are compared with the checkpoint; limits follow from the bits unless they are set")
		p("#   vectors: {max: 0.01}")
		return
	}
	p("verify:                  # the package is compared with the checkpoint; limits follow from the bits unless they are set")
	p("  perplexity: {text: builtin, window: %d, windows: %d}", v.Perplexity.Window, v.Perplexity.Windows)
	p("  # kl: {max: 0.1}")
}

func (d *drafted) writeRewrite(p func(string, ...any)) {
	template := "{path: chat.jinja} # replaces the checkpoint's chat template"
	if d.Source != nil && len(d.Source.Facts.Templates) > 1 {
		names := slices.Sorted(maps.Keys(d.Source.Facts.Templates))
		template = fmt.Sprintf("{name: %s} # one of the checkpoint's chat templates: %s", word(names[len(names)-1]), strings.Join(names, ", "))
	}
	p("# rewrite:")
	p("#   template: %s", template)
}
