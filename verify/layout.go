package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// layout: the manifest's files exist and have their digests, the spans of each weight file cover it without holes,
// overlaps or leftovers and have their digests, and every weight that a graph reads is a span of the manifest.
type layout struct{}

func (layout) String() string { return "layout" }

func (layout) Hint(map[string]float64) string {
	return "the files differ from the manifest: export or pull the package again; pull --replace repairs it"
}

func (layout) Check(ctx context.Context, s *Subject) (Finding, error) {
	m := s.Manifest
	if m == nil {
		return skip("the package has no manifest")
	}
	if !s.Compared {
		if err := m.VerifyFiles(ctx, s.Package.Dir); err != nil {
			return Finding{Fatal: true}.say("%v", err)
		}
	}
	if err := spans(ctx, s); err != nil {
		return Finding{Fatal: true}.say("%v", err)
	}
	if c := s.Package.Config.LLMExport.Content; c != "" && c != m.Content() {
		return Finding{Fatal: true}.say("config.json names the content %s, but the files have %s", c, m.Content())
	}
	return pass(map[string]float64{"files": float64(len(m.Files)), "tensors": float64(len(m.Tensors))},
		"%d files and %d tensors match the manifest", len(m.Files), len(m.Tensors))
}

// spans checks the weight file of every part, and that the manifest lists no tensors elsewhere.
func spans(ctx context.Context, s *Subject) error {
	byFile := map[string][]manifest.Tensor{}
	for _, t := range s.Manifest.Tensors { // sorted by file and offset
		byFile[t.File] = append(byFile[t.File], t)
	}
	for _, part := range s.Package.Parts {
		if err := partSpans(ctx, part, byFile[part.WeightFile]); err != nil {
			return ofPart(part.Name, err)
		}
		delete(byFile, part.WeightFile)
	}
	if left := slices.Sorted(maps.Keys(byFile)); len(left) > 0 {
		return fmt.Errorf("tensors of the manifest are in %s, which no part of the package reads: %w",
			strings.Join(left, ", "), tensor.ErrCorrupt)
	}
	return nil
}

// ofPart adds the graph file of a part to an error, except for the text model.
func ofPart(part string, err error) error {
	if part == "" {
		return err
	}
	return fmt.Errorf("%s: %w", mnn.GraphFile(part), err)
}

// partSpans checks the weight file of a part against list, its tensors in the manifest.
func partSpans(ctx context.Context, part *runtime.Part, list []manifest.Tensor) error {
	w := part.Weights()
	var at int64
	starts := map[int64]*manifest.Tensor{}
	for i := range list {
		t := &list[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		if t.Part != part.Name {
			return fmt.Errorf("%s: the manifest assigns it to part %q, but it is in %s: %w", t.Name, t.Part, t.File, tensor.ErrCorrupt)
		}
		if t.Offset != at {
			return fmt.Errorf("%s begins at %d, but the tensor before it ends at %d: %w", t.Name, t.Offset, at, tensor.ErrCorrupt)
		}
		b, err := w.Bytes(t.Offset, t.Size)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		if sum := digest.Of(b).Hex(); sum != t.SHA256 {
			return fmt.Errorf("%s: SHA-256 of its %d bytes is %s, but the manifest has %s: %w", t.Name, t.Size, sum, t.SHA256, tensor.ErrCorrupt)
		}
		starts[t.Offset] = t
		at += t.Size
	}
	if at != w.Size() {
		return fmt.Errorf("tensors cover %d of the weight file's %d bytes: %w", at, w.Size(), tensor.ErrCorrupt)
	}
	var errs []error
	for _, op := range part.Graph.AllOps() {
		ext := external(op)
		if len(ext) == 0 {
			continue
		}
		var size int64
		for _, n := range ext[1:] {
			size += n
		}
		t := starts[ext[0]]
		if t == nil || t.Size != size || t.Op != op.Name {
			errs = append(errs, fmt.Errorf("op %s reads %d bytes at %d, which is not a tensor of the manifest: %w", op.Name, size, ext[0], tensor.ErrCorrupt))
		}
	}
	return errors.Join(errs...)
}

// external returns the location of an op's weights, or nil.
func external(op *mnn.Op) []int64 {
	switch p := op.Param.(type) {
	case *mnn.Convolution:
		return p.External
	case *mnn.LayerNorm:
		return p.External
	case *mnn.Blob:
		return p.External
	}
	return nil
}
