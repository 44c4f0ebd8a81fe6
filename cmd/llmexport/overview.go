package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
)

// overview describes a package of this or another tool. Parts that cannot be read are missing and have an entry in
// problems.
type overview struct {
	Dir string `json:"dir"`
	// Config is config.json with llm_config.json over it, as the engine merges them.
	Config        map[string]any `json:"config"`
	Files         []fileSize     `json:"files"`
	MinimumEngine string         `json:"minimum_engine,omitempty"`
	Reasons       []string       `json:"minimum_engine_reasons"`
	graphFacts                   // of the text model
	Tokenizer     *tokenFacts    `json:"tokenizer,omitempty"`
	Manifest      *manifestFacts `json:"manifest,omitempty"`
	// Parts are the other parts of the package.
	Parts []partFacts `json:"parts,omitempty"`

	problems []error
}

// graphFacts describes a graph and its linear layers.
type graphFacts struct {
	Ops     []opCount     `json:"op_counts"`
	Linears []linearGroup `json:"linear_layers"`

	graph *mnn.Graph // nil if it cannot be read
}

// partFacts describes a part other than the text model.
type partFacts struct {
	Name string `json:"part"`
	graphFacts
}

// all returns all parts; the name of the text model is empty.
func (o *overview) all() []partFacts { return append([]partFacts{{"", o.graphFacts}}, o.Parts...) }

// title is the heading of a table about a part. It names the part's graph file if there are several.
func (o *overview) title(text string, p partFacts) string {
	if len(o.Parts) == 0 {
		return text
	}
	return text + " in " + mnn.GraphFile(p.Name)
}

type fileSize struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

type opCount struct {
	Op    string `json:"op"`
	Count int    `json:"count"`
}

// storage describes how the weights of a linear layer are stored. Block is 0 if they have no blocks.
type storage struct {
	Bits      int    `json:"bits"`
	Block     int    `json:"block"`
	Symmetric bool   `json:"symmetric"`
	Scale     string `json:"scale"`

	header int // aMaxOrBits
}

func (s storage) String() string {
	if s.Block == 0 {
		return fmt.Sprintf("%d bits", s.Bits)
	}
	sym := "asymmetric"
	if s.Symmetric {
		sym = "symmetric"
	}
	return fmt.Sprintf("%d bits, blocks of %d, %s, %s scales", s.Bits, s.Block, sym, s.Scale)
}

type linearGroup struct {
	storage
	Matrices int   `json:"matrices"`
	Weights  int64 `json:"weights"`
	Bytes    int64 `json:"bytes"`
}

type tokenFacts struct {
	Vocabulary   int     `json:"vocabulary"`
	Special      int     `json:"special"`
	Stop         []int32 `json:"stop"`
	Prefix       []int32 `json:"prefix"`
	ChatTemplate bool    `json:"chat_template"`
}

type manifestFacts struct {
	Name     string          `json:"name"`
	Digest   string          `json:"digest"`
	Tool     manifest.Tool   `json:"tool"`
	Source   string          `json:"source,omitempty"`
	Target   manifest.Target `json:"target"`
	Minimum  string          `json:"minimum_engine"`
	Verified bool            `json:"verified"`
	Passed   int             `json:"checks_passed"`
	Skipped  int             `json:"checks_skipped"`
	// Signed reports whether there is a signature, which was not verified.
	Signed     bool     `json:"signed"`
	Conditions []string `json:"conditions"`
}

// look reads a package. It returns an error if dir is not a package at all.
func look(dir string) (*overview, error) {
	o := &overview{Dir: dir, Config: map[string]any{}, Files: []fileSize{}, Reasons: []string{}, graphFacts: noFacts()}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := o.readConfig(root); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			o.Files = append(o.Files, fileSize{e.Name(), info.Size()})
		}
	}
	for _, read := range []func(*os.Root) error{o.readParts, o.readTokenizer, o.readManifest} {
		if err := read(root); err != nil {
			o.problems = append(o.problems, err)
		}
	}
	o.judge()
	return o, nil
}

func (o *overview) readConfig(root *os.Root) error {
	b, err := readBounded(root, "config.json", maxJSON)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no config.json, so it is not a package of an MNN language model: %w", o.Dir, err)
	}
	if err != nil {
		return err
	}
	if err := jsondoc.Decode(b, &o.Config); err != nil {
		return fmt.Errorf("config.json: %v: %w", err, tensor.ErrCorrupt)
	}
	name := o.file("llm_config", "llm_config.json")
	if b, err = readBounded(root, name, maxJSON); err == nil {
		if err = jsondoc.Decode(b, &o.Config); err != nil {
			err = fmt.Errorf("%s: %v: %w", name, err, tensor.ErrCorrupt)
		}
	}
	if err != nil {
		o.problems = append(o.problems, err)
	}
	return nil
}

// file returns the name of a file from the configuration, or its default.
func (o *overview) file(key, missing string) string {
	if s, ok := o.Config[key].(string); ok {
		return s
	}
	return missing
}

// readParts reads the graphs of the package.
func (o *overview) readParts(root *os.Root) error {
	errs := []error{o.graphFacts.read(root, o.file("llm_model", mnn.GraphFile("")), o.file("llm_weight", mnn.WeightFile("")))}
	own, _ := o.Config["llmexport"].(map[string]any)
	names, _ := own["parts"].([]any)
	for _, n := range names {
		name, ok := n.(string)
		if !ok {
			continue
		}
		p := partFacts{name, noFacts()}
		errs = append(errs, p.read(root, mnn.GraphFile(name), mnn.WeightFile(name)))
		o.Parts = append(o.Parts, p)
	}
	return errors.Join(errs...)
}

func noFacts() graphFacts { return graphFacts{Ops: []opCount{}, Linears: []linearGroup{}} }

// read reads the graph in the file called name, and how its linear layers are stored in the file called weights.
func (f *graphFacts) read(root *os.Root, name, weights string) error {
	b, err := readBounded(root, name, maxGraph)
	if err != nil {
		return err
	}
	if f.graph, err = mnn.Open(b); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	counts := map[string]int{}
	for _, op := range f.graph.AllOps() {
		counts[opName(op)]++
	}
	for n, c := range counts {
		f.Ops = append(f.Ops, opCount{n, c})
	}
	slices.SortFunc(f.Ops, func(a, b opCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Op, b.Op)) })
	return f.readLinears(root, weights)
}

// opName distinguishes elementwise ops.
func opName(op *mnn.Op) string {
	switch p := op.Param.(type) {
	case *mnn.Binary:
		return op.Type.String() + "/" + p.Op.String()
	case *mnn.Unary:
		return op.Type.String() + "/" + p.Op.String()
	}
	return op.Type.String()
}

func (f *graphFacts) readLinears(root *os.Root, name string) error {
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	w := &weightFile{file, st.Size()}
	var errs []error
	for _, op := range f.graph.AllOps() {
		c, ok := op.Param.(*mnn.Convolution)
		if !ok {
			continue
		}
		s, bytes, err := stored(c, w)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", op.Name, err))
			continue
		}
		at := slices.IndexFunc(f.Linears, func(g linearGroup) bool { return g.storage == s })
		if at < 0 {
			at, f.Linears = len(f.Linears), append(f.Linears, linearGroup{storage: s})
		}
		f.Linears[at].Matrices++
		f.Linears[at].Weights += int64(c.Outputs) * int64(c.Inputs)
		f.Linears[at].Bytes += bytes
	}
	slices.SortStableFunc(f.Linears, func(a, b linearGroup) int { return cmp.Compare(b.Bytes, a.Bytes) })
	if len(errs) > 0 { // the first one is enough
		return fmt.Errorf("%s: %w", name, errs[0])
	}
	return nil
}

// stored returns how a linear layer is stored, and its size in bytes.
func stored(c *mnn.Convolution, w mnn.Weights) (storage, int64, error) {
	m, err := c.Open(w)
	if err != nil {
		return storage{}, 0, err
	}
	s := storage{Bits: m.Bits}
	if m.Blocks > 0 {
		s.Block, s.Symmetric, s.Scale, s.header = m.Cols/m.Blocks, m.Symmetric, "fp32", int(c.Quan.MaxOrBits)
		if c.Quan.ScaleFP16 {
			s.Scale = "fp16"
		}
	}
	var n int64
	for _, x := range c.External[1:min(len(c.External), 4)] {
		n += x
	}
	return s, n, nil
}

func (o *overview) readTokenizer(root *os.Root) error {
	name := o.file("tokenizer_file", "tokenizer.txt")
	b, err := readBounded(root, name, maxTokenizer)
	if err != nil {
		return err
	}
	t, err := engine.Open(b)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	o.Tokenizer = &tokenFacts{
		Vocabulary: t.VocabSize(), Special: len(t.Special()), ChatTemplate: t.ChatTemplate() != "",
		Stop: append([]int32{}, t.Stop()...), Prefix: append([]int32{}, t.Prefix()...),
	}
	return nil
}

func (o *overview) readManifest(*os.Root) error {
	m, err := manifest.Open(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f := &manifestFacts{
		Name: m.Name, Digest: string(m.Digest), Tool: m.Tool, Source: m.Source.Name(), Target: m.Target, Minimum: m.MinimumEngine,
		Verified: m.Verified, Conditions: append([]string{}, m.Conditions...),
	}
	if m.Source.Revision != "" {
		f.Source += "@" + m.Source.Revision
	}
	for _, c := range m.Checks {
		switch {
		case c.Passed:
			f.Passed++
		case c.Skipped:
			f.Skipped++
		}
	}
	o.Manifest = f
	signature, err := manifest.ReadSignature(o.Dir)
	f.Signed = signature != nil
	return err
}

// judge derives the required engine release from the contents: releases before 3.6.0 misread fp16 scales and do not
// support the object form of tie_embeddings; the fused ops came with 3.6.1.
func (o *overview) judge() {
	if o.graph == nil {
		return
	}
	o.MinimumEngine = "3.5.0"
	need := func(engine, reason string) {
		o.MinimumEngine = max(o.MinimumEngine, engine)
		o.Reasons = append(o.Reasons, engine+": "+reason)
	}
	all := o.all()
	if slices.ContainsFunc(all, func(p partFacts) bool {
		return slices.ContainsFunc(p.Linears, func(g linearGroup) bool { return g.Scale == "fp16" })
	}) {
		need("3.6.0", "fp16 scales")
	}
	if _, ok := o.Config["tie_embeddings"].(map[string]any); ok {
		need("3.6.0", "tie_embeddings is an object")
	}
	for _, p := range all {
		for _, c := range p.Ops {
			if c.Op == mnn.OpRoPE.String() || c.Op == mnn.OpBinaryOp.String()+"/"+mnn.BinaryMulSilu.String() {
				need("3.6.1", "op "+c.Op)
			}
		}
	}
}
