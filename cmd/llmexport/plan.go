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

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/recipes"
)

func (t *tool) planCommand() *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "show how every tensor would be stored, and what the package costs",
		ArgsUsage: "RECIPE|CHECKPOINT_DIR",
		Description: "No weights are read and nothing is written, but a repository that is not in the Hugging Face cache is\n" +
			"downloaded. A checkpoint directory is planned with the default options. A recipe with quantize.budget is measured\n" +
			"first, as run would do, which takes minutes; the cache keeps it for run and for other budgets.",
		Flags:        append(recipeFlags(), cacheFlag(), jsonFlag()),
		BashComplete: completeRecipes,
		CustomHelpTemplate: help(
			"llmexport plan qwen3.yaml",
			"llmexport plan ./Qwen3-0.6B --set quantize.bits=3 --set target.engine='\"3.5\"'",
		),
		Action: t.plan,
	}
}

// planned is a plan in JSON.
type planned struct {
	Name          string          `json:"name"`
	MinimumEngine string          `json:"minimum_engine"`
	Tensors       []plannedTensor `json:"tensors"`
	WeightBytes   int64           `json:"weight_bytes"`
	GraphBytes    int64           `json:"graph_bytes"`
	Specs         []plannedSpec   `json:"specs"`
	// BitsPerWeight counts codes, scales and headers of matrices.
	BitsPerWeight  float64 `json:"bits_per_weight"`
	DeviceBytes    int64   `json:"device_bytes"`
	DevicePosition int64   `json:"device_bytes_per_position"`
	Positions      int     `json:"device_positions"`
	// Allocation is what a budget decided; absent without one.
	Allocation    *plannedAllocation `json:"allocation,omitempty"`
	UnsafeThreads map[int][]int      `json:"unsafe_threads"`
	AutoBlocks    []plannedBlock     `json:"auto_blocks"`
	Warnings      []string           `json:"warnings"`
}

// plannedAllocation is how a budget was shared out.
type plannedAllocation struct {
	// FileBytes are those of all files that the engine opens.
	FileBytes int64 `json:"file_bytes"`
	// PredictedKL is the divergence from the source in nats, from what was measured on ProbeTokens.
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

// plannedBlock is a choice of "block: auto".
type plannedBlock struct {
	Name  string `json:"name"`
	Cols  int    `json:"cols"`
	From  int    `json:"from"`
	Block int    `json:"block"`
}

func (t *tool) plan(c *cli.Context) error {
	args, err := arguments(c, "RECIPE|CHECKPOINT_DIR")
	if err != nil {
		return err
	}
	saveMemory()
	var tasks []*task
	if st, err := os.Stat(args[0]); err == nil && st.IsDir() {
		tasks, err = t.checkpointTask(c, args[0])
		if err != nil {
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
		plans = append(plans, p)
		if !c.Bool("json") {
			if err := p.write(t.stdout, i == 0); err != nil {
				return err
			}
		}
	}
	if !c.Bool("json") {
		return nil
	}
	return t.printPlans(plans)
}

// checkpointTask is the task of a recipe that only names a directory.
func (t *tool) checkpointTask(c *cli.Context, dir string) ([]*task, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(map[string]any{
		"version": recipes.Version, "name": stage.PackageName(abs, 0), "model": map[string]string{"path": filepath.ToSlash(abs)},
	})
	if err != nil {
		return nil, err
	}
	r, err := recipes.Load(b, dir, stage.Sections(), overrides(c)...)
	if err != nil {
		return nil, err
	}
	x, err := t.task(r)
	return []*task{x}, err
}

func (t *tool) planTask(c *cli.Context, x *task) (*planned, error) {
	q := stage.Find[*stage.Quantize](x.stages)
	if q.Budget != nil {
		return t.planBudget(c, x, q)
	}
	ctx := c.Context
	snapshot, err := stage.Find[*stage.Fetch](x.stages).Resolve(ctx, x.job)
	t.progress.stop()
	if err != nil {
		return nil, err
	}
	src, err := stage.OpenSource(snapshot.Dir, x.job.Recipe.Model.IgnoreConfig)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	src.Tokenizer = nil // its facts are known, and it is large
	pl, err := q.Plan(x.job, src)
	if err != nil {
		return nil, err
	}
	return describe(x.job.Recipe.Name, pl), nil
}

// planBudget runs the stages that a budget needs, and plans with what they decided.
func (t *tool) planBudget(c *cli.Context, x *task, q *stage.Quantize) (*planned, error) {
	st, err := openStore(c, x.job.Recipe)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	x.job.Store = st
	_, err = pipeline.Execute(c.Context, x.job, stage.Before(x.stages, q))
	t.progress.stop()
	if err != nil {
		return nil, err
	}
	src, err := stage.OpenJobSource(x.job)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	pl, err := q.Plan(x.job, src)
	if err != nil {
		return nil, err
	}
	return describe(x.job.Recipe.Name, pl), nil
}

// describe sums a plan up.
func describe(name string, pl *stage.Planned) *planned {
	p := &planned{
		Name: name, MinimumEngine: pl.Target.Minimum, WeightBytes: pl.Plan.Bytes, GraphBytes: pl.GraphBytes,
		Positions: stage.DeviceContext, UnsafeThreads: map[int][]int{},
		Specs: []plannedSpec{}, AutoBlocks: []plannedBlock{},
		Warnings: append(append([]string{}, pl.Source.Facts.Warnings...), pl.Conditions()...),
	}
	p.Tensors = make([]plannedTensor, 0, len(pl.Plan.Items))
	var weights, bytes int64
	for i := range pl.Plan.Items {
		it := &pl.Plan.Items[i]
		spec, name := it.Spec(), it.Slot.Weight.Tensor
		p.Tensors = append(p.Tensors, plannedTensor{name, it.Slot.Name, it.Source.Shape, spec, it.Offset, it.Size()})
		at := slices.IndexFunc(p.Specs, func(s plannedSpec) bool { return s.Spec == spec })
		if at < 0 {
			at, p.Specs = len(p.Specs), append(p.Specs, plannedSpec{Spec: spec})
		}
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
	if a := pl.Allocation; a != nil {
		p.Allocation = &plannedAllocation{a.Bytes, a.KL, a.Probe}
	}
	slices.SortStableFunc(p.Specs, func(a, b plannedSpec) int { return cmp.Compare(b.Bytes, a.Bytes) })
	p.BitsPerWeight = 8 * float64(bytes) / float64(max(weights, 1))
	m := pl.Memory()
	p.DeviceBytes, p.DevicePosition = m.Total(stage.DeviceContext), m.PerToken
	for _, w := range plan.PackWidths {
		p.UnsafeThreads[w] = append([]int{}, pl.Plan.UnsafeThreads(w)...)
	}
	return p
}

func (p *planned) write(w io.Writer, first bool) error {
	s := publish.NewSheet("tensor", "spec", ">offset", ">bytes")
	for _, x := range p.Tensors {
		s.Row(x.Name, x.Spec, x.Offset, x.Bytes)
	}
	errs := []error{s.Write(w, first)}

	s = publish.NewSheet("spec", ">tensors", ">bytes")
	for _, x := range p.Specs {
		s.Row(x.Spec, x.Tensors, x.Bytes)
	}
	errs = append(errs, s.Write(w, false))

	s = publish.NewSheet()
	s.Row("package", p.Name)
	s.Row("needs", "MNN "+p.MinimumEngine)
	s.Row("size", publish.SizeText(p.WeightBytes+p.GraphBytes)+", tokenizer and texts not counted")
	if a := p.Allocation; a != nil {
		s.Row("files", publish.SizeText(a.FileBytes)+", all that the engine opens")
		s.Row("predicted", fmt.Sprintf("%.4g nats of divergence from the source, measured on %d tokens", a.PredictedKL, a.ProbeTokens))
	}
	s.Row("weights", fmt.Sprintf("%s, %.3f bits per weight", publish.SizeText(p.WeightBytes), p.BitsPerWeight))
	s.Row("graph", publish.SizeText(p.GraphBytes))
	s.Row("device memory", fmt.Sprintf("%s with %d positions, %d bytes per position", publish.SizeText(p.DeviceBytes), p.Positions, p.DevicePosition))
	for _, pack := range plan.PackWidths {
		s.Row("unsafe threads", fmt.Sprintf("%s (pack width %d, up to %d threads, dynamic_option 0)", ranges(p.UnsafeThreads[pack]), pack, plan.MaxThreads))
	}
	errs = append(errs, s.Write(w, false))

	s = publish.NewSheet("block: auto", ">columns", ">wanted", ">chosen")
	for _, x := range p.AutoBlocks {
		s.Row(x.Name, x.Cols, x.From, x.Block)
	}
	errs = append(errs, s.Write(w, false))
	for i, x := range p.Warnings {
		if i == 0 {
			fmt.Fprintln(w)
		}
		_, err := fmt.Fprintf(w, "note: %s\n", publish.Plain(x))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
