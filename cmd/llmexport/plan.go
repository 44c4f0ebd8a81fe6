package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/kernel"
)

func (t *tool) planCommand() *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "show the size, time and memory of a package before it is made",
		ArgsUsage: planArgs,
		Description: "No weights are read. Of a repository that is not in the Hugging Face cache, only small files and the headers of\n" +
			"its shards are downloaded. A checkpoint directory, or a repository hf://ORG/NAME[@REVISION], is planned with default\n" +
			"options. Time, memory and disk are those of run on this machine, without what the cache already has; its speed is\n" +
			"measured for half a second if that matters. With quantize.budget, run measures the model and then chooses how each\n" +
			"matrix is stored; --measure does so now, and the cache keeps the result for run and for other budgets.",
		Flags: append(recipeFlags(), cacheFlag(),
			&cli.BoolFlag{Name: "tensors", Usage: "list every tensor with its offset and size"},
			&cli.BoolFlag{Name: "measure", Usage: "measure the model for quantize.budget, which takes minutes or hours"},
			&cli.BoolFlag{Name: "download", Usage: "download the weights of a repository that are not in the cache"},
			jsonFlag()),
		BashComplete: completeRecipes,
		CustomHelpTemplate: help(
			"llmexport plan qwen3.yaml",
			"llmexport plan hf://Qwen/Qwen3-0.6B",
			"llmexport plan ./Qwen3-0.6B --set quantize.bits=3 --tensors",
		),
		Action: t.plan,
	}
}

const planArgs = "RECIPE|CHECKPOINT_DIR|hf://REPO"

// planned is a plan in JSON output.
type planned struct {
	Name          string          `json:"name"`
	MinimumEngine string          `json:"minimum_engine"`
	Tensors       []plannedTensor `json:"tensors"`
	WeightBytes   int64           `json:"weight_bytes"`
	GraphBytes    int64           `json:"graph_bytes"`
	Specs         []plannedSpec   `json:"specs"`
	// BitsPerWeight counts codes, scales and headers of matrices.
	BitsPerWeight float64 `json:"bits_per_weight"`
	// Roles groups the tensors of all layers.
	Roles []plannedRole `json:"roles"`
	// Budget is quantize.budget if the model has not been measured for it: tensors, sizes and device memory are then those of
	// the options without the budget.
	Budget         string `json:"unmeasured_budget,omitempty"`
	DeviceBytes    int64  `json:"device_bytes"`
	DevicePosition int64  `json:"device_bytes_per_position"`
	Positions      int    `json:"device_positions"`
	// Allocation is absent without a budget.
	Allocation    *plannedAllocation `json:"allocation,omitempty"`
	UnsafeThreads map[int][]int      `json:"unsafe_threads"`
	AutoBlocks    []plannedBlock     `json:"auto_blocks"`
	Warnings      []string           `json:"warnings"`
	// Estimate is what a run would take on this machine.
	Estimate *stage.Estimate `json:"estimate,omitempty"`
	// Remote is absent if the weights are on this machine.
	Remote *plannedRemote `json:"remote,omitempty"`
}

// plannedRemote counts the downloads of a plan and of its run, for a checkpoint whose weights are not on this machine.
type plannedRemote struct {
	// Read is what this plan downloaded, Download what a run will download, in bytes.
	Read     int64 `json:"read_bytes"`
	Download int64 `json:"download_bytes"`
	// Held is the largest part of the download on disk at once; absent if the recipe keeps the checkpoint.
	Held int64 `json:"held_bytes,omitempty"`
	// Unseen lists conditions that depend on the weights; run checks them.
	Unseen []string `json:"unseen,omitempty"`
}

// plannedAllocation is the result of a budget.
type plannedAllocation struct {
	// FileBytes counts all files that the engine opens.
	FileBytes int64 `json:"file_bytes"`
	// PredictedKL is the expected divergence from the source in nats, extrapolated from ProbeTokens tokens.
	PredictedKL float64 `json:"predicted_kl"`
	ProbeTokens int64   `json:"probe_tokens"`
}

type plannedTensor struct {
	Name   string  `json:"name"`
	Op     string  `json:"op"`
	Shape  []int64 `json:"shape"`
	Spec   string  `json:"spec"`
	Offset int64   `json:"offset"`
	Bytes  int64   `json:"bytes"`
}

type plannedSpec struct {
	Spec    string `json:"spec"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// plannedBlock is a block size chosen by "block: auto".
type plannedBlock struct {
	Name  string `json:"name"`
	Cols  int    `json:"cols"`
	From  int    `json:"from"`
	Block int    `json:"block"`
}

func (t *tool) plan(c *cli.Context) error {
	args, err := arguments(c, planArgs)
	if err != nil {
		return err
	}
	saveMemory()
	var tasks []*stage.Run
	if strings.HasPrefix(args[0], "hf://") {
		model, err := repository(args[0])
		if err != nil {
			return err
		}
		if tasks, err = t.modelTask(c, args[0], model.Repo, model); err != nil {
			return err
		}
	} else if st, err := os.Stat(args[0]); err == nil && st.IsDir() {
		abs, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		if tasks, err = t.modelTask(c, args[0], abs, recipes.Model{Path: filepath.ToSlash(abs)}); err != nil {
			return err
		}
	} else if tasks, err = t.tasks(c, args[0]); err != nil {
		return err
	}
	plans := make([]*planned, 0, len(tasks))
	for i, x := range tasks {
		p, err := t.planTask(c, x)
		if err != nil {
			return err
		}
		if p.Remote != nil && p.Remote.Held > 0 && len(tasks) > 1 {
			p.Warnings = append(p.Warnings, "with fetch.keep: false every variant fetches the shards again: "+sheet.Size(p.Remote.Download)+" for this one")
		}
		plans = append(plans, p)
		if !c.Bool("json") {
			if err := t.show(func(w io.Writer) error { return p.write(w, i == 0, c.Bool("tensors")) }); err != nil {
				return err
			}
		}
	}
	if !c.Bool("json") {
		return nil
	}
	return t.printPlans(plans)
}

// modelTask returns the task of a recipe that only names a model; file stands in for the name of the recipe's file.
func (t *tool) modelTask(c *cli.Context, file, name string, model recipes.Model) ([]*stage.Run, error) {
	b, err := json.Marshal(map[string]any{"version": recipes.Version, "name": stage.PackageName(name, 0), "model": model})
	if err != nil {
		return nil, err
	}
	r, err := recipes.Load(b, file, stage.Sections(), overrides(c)...)
	if err != nil {
		return nil, err
	}
	x, err := t.task(c.Context, r)
	return []*stage.Run{x}, err
}

func (t *tool) planTask(c *cli.Context, x *stage.Run) (*planned, error) {
	defer x.Close()
	f := &x.Fetch
	ctx, m := c.Context, &meter{}
	f.Client = m.client()
	sk, err := f.Skeleton(ctx, x)
	if f.Client = nil; err == nil && len(sk.Headers) > 0 && c.Bool("download") {
		var s *hub.Snapshot
		if s, err = f.Resolve(ctx, x); err == nil {
			sk = &hub.Skeleton{Snapshot: *s}
		}
	}
	t.progress.stop()
	if err != nil {
		return nil, err
	}
	terms, err := f.Terms(ctx, x, &sk.Snapshot)
	if err != nil {
		return nil, err
	}
	p, err := t.planSource(c, x, sk)
	if err != nil {
		return nil, err
	}
	if terms != "" {
		p.Warnings = append(p.Warnings, "run would stop: "+terms)
	}
	if p.Remote != nil {
		p.Remote.Read = m.read.Load()
	}
	return p, nil
}

// planSource plans the package of a checkpoint.
func (t *tool) planSource(c *cli.Context, x *stage.Run, sk *hub.Skeleton) (*planned, error) {
	if x.Quantize.Budget != nil {
		allocated, err := t.allocated(c, x, sk)
		switch {
		case err != nil:
			return nil, err
		case c.Bool("measure") && len(sk.Headers) > 0:
			return nil, needsWeights("measuring reads the weights", sk)
		case c.Bool("measure") || allocated:
			return t.planBudget(c, x, sk)
		}
	}
	src, err := source.Open(c.Context, source.OfSkeleton(sk), x.Recipe.Model.IgnoreConfig)
	var pl *assemble.Planned
	if err == nil {
		defer src.Close()
		src.Tokenizer = nil // it is large and no longer needed
		pl, err = x.Plan(src, nil)
	}
	if errors.Is(err, safetensors.ErrNoWeights) {
		err = needsWeights("the matrices are quantized, and their scales decide how they are stored", sk)
	}
	if err != nil {
		return nil, err
	}
	p := describe(x.Recipe.Name, pl)
	if b := x.Quantize.Budget; b != nil {
		p.Budget = b.String()
		p.undecided(pl)
	}
	if err := t.estimate(c, x, sk, pl, p); err != nil {
		return nil, err
	}
	if len(sk.Headers) > 0 {
		p.Remote = &plannedRemote{Download: missing(sk), Unseen: pl.Unseen()}
		if !x.Fetch.Keep {
			p.Remote.Download, p.Remote.Held = pl.Streaming()
		}
	}
	return p, nil
}

// missing returns the size of the weights that are not on this machine.
func missing(sk *hub.Skeleton) (bytes int64) {
	for _, f := range sk.Files {
		if _, ok := sk.Headers[f.Name]; !ok {
			continue
		}
		if st, err := os.Stat(filepath.Join(sk.Dir, f.Name)); err != nil || st.Size() != f.Size {
			bytes += f.Size
		}
	}
	return bytes
}

// needsWeights is the error for plans that need weights which would have to be downloaded.
func needsWeights(why string, sk *hub.Skeleton) error {
	return hint(fmt.Errorf("%s: %s, and the weights are not in the cache: %s would be downloaded", sk.Repo, why, sheet.Size(missing(sk))),
		"use --download to fetch them, as run does")
}

// allocated reports whether the cache has what was chosen for the budget of a run.
func (t *tool) allocated(c *cli.Context, x *stage.Run, sk *hub.Skeleton) (bool, error) {
	first, done, err := t.missing(c, x, sk)
	if err != nil {
		return false, err
	}
	return stage.Allocated(first), done()
}

// missing returns the first entry that a run would make. The store that it opens for that, if there is one, stays open until done.
func (t *tool) missing(c *cli.Context, x *stage.Run, sk *hub.Skeleton) (first string, done func() error, err error) {
	done = func() error { return nil }
	if _, err := os.Stat(cacheDir(c, x)); x.Store == nil && err == nil {
		st, err := openStore(c, x)
		if err != nil {
			return "", nil, err
		}
		x.Store = st
		done = func() error { x.Store = nil; return st.Close() }
	}
	first, err = x.Missing(c.Context, &sk.Snapshot)
	if err != nil {
		err = errors.Join(err, done())
	}
	return first, done, err
}

// planBudget runs the stages that a budget needs, and plans with their result.
func (t *tool) planBudget(c *cli.Context, x *stage.Run, sk *hub.Skeleton) (*planned, error) {
	st, err := openStore(c, x)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	x.Store = st
	_, err = x.Execute(c.Context, x.Allocate.String())
	t.progress.stop()
	if err != nil {
		return nil, err
	}
	pl, err := x.Planned(c.Context)
	if err != nil {
		return nil, err
	}
	p := describe(x.Recipe.Name, pl)
	return p, t.estimate(c, x, sk, pl, p)
}

// estimate adds what a run would take, without what the cache has.
func (t *tool) estimate(c *cli.Context, x *stage.Run, sk *hub.Skeleton, pl *assemble.Planned, p *planned) error {
	first, done, err := t.missing(c, x, sk)
	if err != nil {
		return err
	}
	p.Estimate, err = x.Estimate(pl, first)
	return errors.Join(err, done())
}

// describe summarizes a plan.
func describe(name string, pl *assemble.Planned) *planned {
	p := &planned{
		Name: name, MinimumEngine: pl.Target.Minimum, WeightBytes: pl.Plan.Bytes(), GraphBytes: pl.GraphBytes,
		Positions: assemble.DeviceContext, UnsafeThreads: map[int][]int{},
		Tensors: make([]plannedTensor, 0, pl.Plan.Len()), Specs: []plannedSpec{}, Roles: []plannedRole{}, AutoBlocks: []plannedBlock{},
		Warnings: append(append([]string{}, pl.Source.Facts.Warnings...), pl.Conditions()...),
	}
	var weights, bytes int64
	for _, part := range pl.Plan.Parts {
		for i := range part.Items {
			it := &part.Items[i]
			spec, name := it.Spec(), it.Slot.Weight.Tensor
			p.Tensors = append(p.Tensors, plannedTensor{name, it.Slot.Name, it.Source.Shape, spec, it.Offset, it.Size()})
			at := slices.IndexFunc(p.Specs, func(s plannedSpec) bool { return s.Spec == spec })
			if at < 0 {
				at, p.Specs = len(p.Specs), append(p.Specs, plannedSpec{Spec: spec})
			}
			p.addRole(part.Lowered.Name, it, spec)
			p.Specs[at].Tensors++
			p.Specs[at].Bytes += it.Size()
			if it.Matrix() {
				weights += int64(it.Layout.Rows) * int64(it.Layout.Cols)
				bytes += it.Size() - it.Bias
			}
			if it.Choice.AutoFrom != 0 {
				p.AutoBlocks = append(p.AutoBlocks, plannedBlock{name, it.Layout.Cols, it.Choice.AutoFrom, it.Layout.BlockCols})
			}
		}
	}
	if a := pl.Allocation; a != nil {
		p.Allocation = &plannedAllocation{a.Bytes, a.KL, a.Probe}
	}
	slices.SortStableFunc(p.Specs, func(a, b plannedSpec) int { return cmp.Compare(b.Bytes, a.Bytes) })
	p.BitsPerWeight = 8 * float64(bytes) / float64(max(weights, 1))
	m := pl.Memory()
	p.DeviceBytes, p.DevicePosition = m.Total(assemble.DeviceContext), m.PerToken
	for _, w := range plan.PackWidths {
		p.UnsafeThreads[w] = append([]int{}, pl.Plan.UnsafeThreads(w)...)
	}
	return p
}

// timeOn is the time of a run on the threads of this machine. How much of it a device saves is not known before it works.
func timeOn(e *stage.Estimate) string {
	threads := fmt.Sprintf("these %d threads", e.Threads)
	if e.Threads == 1 {
		threads = "one thread"
	}
	if kernel.HasDevice() {
		threads += " without the card, less with it"
	}
	return span(max(e.Seconds, 1)) + " on " + threads
}

// writeEstimate adds the rows of the estimate.
func (p *planned) writeEstimate(s *sheet.Table) {
	e := p.Estimate
	if e == nil {
		return
	}
	if len(e.Stages) == 0 {
		s.Row("time", "none: the cache has the package already")
		return
	}
	var parts []string
	for _, x := range e.Stages {
		if x.Seconds >= .5 {
			parts = append(parts, x.Stage+" "+span(x.Seconds))
		}
	}
	text := "about " + timeOn(e)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	s.Row("time", text)
	s.Row("host memory", "about "+sheet.Rounded(e.Memory))
	s.Row("disk", "up to "+sheet.Rounded(e.Disk)+" for the cache and directories")
}

// write prints the summary, then warnings, then what is stored how. first is true of the first plan of a recipe.
func (p *planned) write(w io.Writer, first, tensors bool) error {
	s := sheet.New()
	s.Row("package", p.Name)
	p.writeSize(s)
	p.writeEstimate(s)
	p.writeDownload(s)
	if p.Budget == "" {
		s.Row("device memory", fmt.Sprintf("%s with %d positions, %d bytes per position", sheet.Size(p.DeviceBytes), p.Positions, p.DevicePosition))
	}
	s.Row("needs", "MNN "+p.MinimumEngine)
	errs := []error{s.Write(w, first)}

	for i, x := range p.notes() {
		if i == 0 {
			fmt.Fprintln(w)
		}
		_, err := fmt.Fprintf(w, "note: %s\n", sheet.Plain(x))
		errs = append(errs, err)
	}

	s = sheet.New(">tensors", "role", "storage", ">bytes")
	for _, r := range p.Roles {
		bytes := fmt.Sprint(r.Bytes)
		if r.Spec == undecidedSpec {
			bytes = ""
		}
		s.Row(fmt.Sprintf("%d x", r.Tensors), r.Role, storageText(r.Spec), bytes)
	}
	errs = append(errs, s.Write(w, false))
	if tensors {
		errs = append(errs, p.writeTensors(w))
	}
	return errors.Join(errs...)
}

// writeSize adds the rows of the size of the package.
func (p *planned) writeSize(s *sheet.Table) {
	switch {
	case p.Budget != "":
		s.Row("budget", p.Budget+"; --measure chooses now and predicts the quality")
		return
	case p.Allocation != nil:
		s.Row("size", fmt.Sprintf("%s in all files that the engine opens, %.3g bits per weight", sheet.Size(p.Allocation.FileBytes), p.BitsPerWeight))
		s.Row("predicted", fmt.Sprintf("KL %.3g nats from the source, extrapolated from %d tokens", p.Allocation.PredictedKL, p.Allocation.ProbeTokens))
	default:
		s.Row("size", fmt.Sprintf("%s without tokenizer and texts, %.3g bits per weight", sheet.Size(p.WeightBytes+p.GraphBytes), p.BitsPerWeight))
	}
}

// writeDownload adds the rows of what comes from a hub.
func (p *planned) writeDownload(s *sheet.Table) {
	r := p.Remote
	if r == nil {
		s.Row("download", "nothing: the checkpoint is on this machine")
		return
	}
	text := sheet.Rounded(r.Download)
	if r.Held > 0 {
		text += ", at most " + sheet.Rounded(r.Held) + " on disk at once in addition to the package"
	}
	s.Row("download", text)
}

// notes are the warnings, what only run can check, and numbers of threads to avoid.
func (p *planned) notes() []string {
	list := slices.Clone(p.Warnings)
	if r := p.Remote; r != nil {
		for _, x := range r.Unseen {
			list = append(list, "run will check: "+x)
		}
	}
	first := 0
	for _, unsafe := range p.UnsafeThreads {
		if len(unsafe) > 0 && (first == 0 || unsafe[0] < first) {
			first = unsafe[0]
		}
	}
	if first > 0 {
		list = append(list, fmt.Sprintf("thread_num: from %d threads on, some counts make the engine compute wrongly unless dynamic_option is 2; "+
			"--tensors lists them, and config.json has a right one", first))
	}
	return list
}

// writeTensors lists every tensor, the storage forms, and the block sizes that "block: auto" has chosen.
func (p *planned) writeTensors(w io.Writer) error {
	s := sheet.New("tensor", "spec", ">offset", ">bytes")
	for _, x := range p.Tensors {
		s.Row(x.Name, x.Spec, x.Offset, x.Bytes)
	}
	errs := []error{s.Write(w, false)}
	s = sheet.New("spec", ">tensors", ">bytes")
	for _, x := range p.Specs {
		s.Row(x.Spec, x.Tensors, x.Bytes)
	}
	errs = append(errs, s.Write(w, false))
	s = sheet.New("pack width", "threads with which the engine computes wrongly unless dynamic_option is 2")
	for _, pack := range plan.PackWidths {
		s.Row(pack, fmt.Sprintf("%s, of up to %d", ranges(p.UnsafeThreads[pack]), plan.MaxThreads))
	}
	errs = append(errs, s.Write(w, false))
	s = sheet.New("block: auto", ">columns", ">wanted", ">chosen")
	for _, x := range p.AutoBlocks {
		s.Row(x.Name, x.Cols, x.From, x.Block)
	}
	return errors.Join(append(errs, s.Write(w, false))...)
}
