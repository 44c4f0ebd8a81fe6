package stage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/shared"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/place"
)

// Span is a range of stages that runs by itself, on any machine, with the shared store in common with the others.
type Span struct {
	// From is the first stage; empty is the first of all. The results of the stages before it are taken from the store.
	From string
	// Until is the last stage; empty is the last of all.
	Until string
	// After is the [Part.Record] of the span before. If it is empty, the results are the newest ones of the same recipe and version of
	// the code. For spans that begin at verify or before, it may be that of a variant: it names the commit of the checkpoint, and
	// their stages find the rest.
	After digest.Digest
	// Again runs the stages although the shared store has their results, which Run.Store may hide from them.
	Again bool
}

// Part is what a [Span] has made.
type Part struct {
	// Package is the name of the package.
	Package string `json:"package"`
	From    string `json:"from"`
	Until   string `json:"until"`
	// Record names everything that was made so far, for [Span.After].
	Record digest.Digest `json:"record"`
	// Commit is that of the model repository; empty for a directory. Checkpoint is the digest of its files; empty if the span did
	// not need them.
	Commit     string        `json:"commit,omitempty"`
	Checkpoint digest.Digest `json:"checkpoint,omitempty"`
	// Entries of the store that the package consists of so far.
	Entries []PartEntry `json:"entries"`
	// Manifest is the digest of the package, Dir its directory on this machine and Report the path of its report; empty before it is
	// verified.
	Manifest digest.Digest `json:"manifest,omitempty"`
	Dir      string        `json:"dir,omitempty"`
	Report   string        `json:"report,omitempty"`
	// Published lists where the package is.
	Published []place.Receipt   `json:"published,omitempty"`
	Timings   []pipeline.Timing `json:"timings"`
	// Shown is the package in the places whose channels are to move, see [publish.MoveChannels].
	Shown []publish.Shown `json:"-"`
}

// PartEntry is an entry of a [Part].
type PartEntry struct {
	Name   string        `json:"name"`
	Digest digest.Digest `json:"digest"`
	// From is empty for an entry that the span did not need.
	From pipeline.From `json:"from,omitempty"`
}

// AbsentError means that the shared store lacks what the stages before a span have made. It is fs.ErrNotExist.
type AbsentError struct {
	// Stage has to run first.
	Stage string
	why   string
}

func (e *AbsentError) Error() string {
	return fmt.Sprintf("the shared store lacks the results of stage %s: %s", e.Stage, e.why)
}

// Is makes the error match fs.ErrNotExist.
func (e *AbsentError) Is(target error) bool { return target == fs.ErrNotExist }

// trail is what the stages up to one have made, as a note of the shared store.
type trail struct {
	Package string        `json:"package"`
	Hub     string        `json:"hub,omitempty"`
	Access  string        `json:"access,omitempty"`
	Commit  string        `json:"commit,omitempty"`
	Day     string        `json:"day,omitempty"`
	Source  digest.Digest `json:"source"`
	Files   []hub.File    `json:"files"`
	// Entries by the fields of Made.
	Entries map[string]PartEntry `json:"entries"`
}

// product is an entry among Made that outlives a span.
type product struct {
	kind string // names it in a trail
	of   pipeline.Stage[*Run]
	*pipeline.Artifact
}

// products lists them in the order in which they are made.
func (r *Run) products() []product {
	return []product{
		{"inputs", &r.Rewrite, &r.Inputs}, {"calibration", &r.Calibrate, &r.Calibration}, {"allocation", &r.Allocate, &r.Allocation},
		{"codes", &r.Quantize, &r.Codes}, {"weights", &r.Quantize, &r.Weights}, {"package", &r.Verify, &r.Verdict},
		{"signature", &r.Sign, &r.Signature},
	}
}

// Part runs the stages of a span. What it makes is in the shared store afterwards, which is that of Run.Shared and of Run.Store.
//
// Stages up to verify need the checkpoint: from this machine, the shared store or the hub, which decides the commit for the first
// span. Those after verify need only the package.
func (r *Run) Part(ctx context.Context, span Span) (*Part, error) {
	stages := r.Stages()
	from, until, err := r.bounds(span)
	if err != nil {
		return nil, err
	}
	p := &Part{Package: r.Recipe.Name, From: stages[from].String(), Until: stages[until].String(), Entries: []PartEntry{}}
	r.apart = stages[until] != pipeline.Stage[*Run](&r.Publish)
	before := &trail{}
	if from > 0 || span.After != "" {
		if before, err = r.before(ctx, r.maker(stages[:max(from, 1)]), span.After); err != nil {
			return nil, err
		}
		r.commitOf, r.Fetch.Access, r.Fetch.Want = before.Commit, &before.Access, before.Files
	}
	if from < slices.Index(stages, pipeline.Stage[*Run](&r.Sign)) {
		if !span.Again {
			done, err := r.done(ctx, stages[until], before)
			if err != nil {
				return nil, err
			}
			if done != nil {
				return p, r.handOver(ctx, p, done, from, until)
			}
		}
		stages = onlyFind(stages[:until+1], from)
	} else {
		if before.Package != r.Recipe.Name {
			return nil, &SpanError{fmt.Errorf("record %s is of package %.100s, not %s", span.After, before.Package, r.Recipe.Name)}
		}
		if err := r.restore(ctx, before, r.maker(stages[:from])); err != nil {
			return nil, err
		}
		stages = stages[from : until+1]
	}
	p.Timings, err = pipeline.Execute(ctx, r, stages)
	p.Published, p.Shown = r.Published, r.Shown
	if err != nil {
		return p, err
	}
	return p, r.handOver(ctx, p, before, from, until)
}

// Check returns a [SpanError] unless the stages of a span exist in this order.
func (r *Run) Check(span Span) error {
	_, _, err := r.bounds(span)
	return err
}

// bounds are the indexes of the first and the last stage of a span.
func (r *Run) bounds(span Span) (from, until int, err error) {
	stages := r.Stages()
	if from, err = indexOf(stages, cmp.Or(span.From, stages[0].String())); err != nil {
		return 0, 0, err
	}
	if until, err = indexOf(stages, cmp.Or(span.Until, stages[len(stages)-1].String())); err != nil {
		return 0, 0, err
	}
	if from > until {
		return 0, 0, &SpanError{fmt.Errorf("stage %s comes after stage %s", stages[from], stages[until])}
	}
	return from, until, nil
}

func indexOf(stages []pipeline.Stage[*Run], name string) (int, error) {
	upTo, err := pipeline.Until(stages, name)
	if err != nil {
		return 0, &SpanError{err}
	}
	return len(upTo) - 1, nil
}

// SpanError is the error for a span of stages that do not exist, or of another package.
type SpanError struct{ err error }

func (e *SpanError) Error() string { return e.err.Error() }
func (e *SpanError) Unwrap() error { return e.err }

// maker is the last of some stages that makes something.
func (r *Run) maker(stages []pipeline.Stage[*Run]) pipeline.Stage[*Run] {
	for _, s := range slices.Backward(stages) {
		if sk, ok := s.(pipeline.Skipper[*Run]); ok {
			if _, skip := sk.Skip(r); skip {
				continue
			}
		}
		return s
	}
	return stages[0]
}

// trailKey names the note of what the stages of this recipe up to one have made.
func (r *Run) trailKey(until pipeline.Stage[*Run]) (string, error) {
	recipe, err := effective(*r.Recipe, r.Options)
	if err != nil {
		return "", err
	}
	of := inputs{until.String(), recipe, r.Fetch.Source}
	if until == pipeline.Stage[*Run](&r.Sign) || until == pipeline.Stage[*Run](&r.Publish) {
		of = append(of, r.Sign)
	}
	key, err := pipeline.Key("trail", of...)
	return until.String() + "-" + key, err
}

// before reads what the stages up to one have made: the newest, or what a record names.
func (r *Run) before(ctx context.Context, until pipeline.Stage[*Run], record digest.Digest) (*trail, error) {
	name, err := r.trailKey(until)
	if err != nil {
		return nil, err
	}
	if record != "" {
		if _, err := digest.Parse(string(record)); err != nil {
			return nil, &SpanError{err}
		}
		name = recordNote(record)
	}
	t := &trail{}
	found, err := shared.ReadNote(ctx, r.Shared, name, t)
	if err != nil {
		return nil, err
	}
	if !found {
		code, err := pipeline.Code()
		if err != nil {
			return nil, err
		}
		return nil, &AbsentError{until.String(), "it has none for this recipe, these options and version " + code + " of the code"}
	}
	return t, nil
}

// done returns what the stages up to one have made of the checkpoint of a trail, if all of it is in the shared store: then nothing
// has to be fetched to find that out. It is nil if something is missing, for publishing, and for recipes that name files, whose
// content may have changed.
func (r *Run) done(ctx context.Context, until pipeline.Stage[*Run], before *trail) (*trail, error) {
	files := r.Rewrite.Template.Path + r.Verify.Perplexity.Text.Path + r.Verify.Golden
	for _, d := range r.Calibrate.Data {
		files += d.Path
	}
	for _, m := range r.Calibrate.media() {
		if m.of != nil {
			files += m.of.Path
		}
	}
	if before.Source == "" || files != "" || !r.apart {
		return nil, nil
	}
	t, err := r.before(ctx, until, "")
	if errors.As(err, new(*AbsentError)) || err == nil && (t.Source != before.Source || t.Commit != before.Commit) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range t.Entries {
		if there, err := r.Shared.Has(ctx, e.Name); !there || err != nil {
			return nil, err
		}
	}
	if _, verified := t.Entries["package"]; verified {
		err = r.restore(ctx, t, until)
	}
	if err != nil {
		return nil, err
	}
	zerolog.Ctx(ctx).Info().Str("until", until.String()).Msg("nothing to do: the shared store has the results of these stages")
	return t, nil
}

func recordNote(record digest.Digest) string { return "record-" + record.Hex()[:48] }

// onlyFind returns stages of which those before from only find what they have made.
func onlyFind(stages []pipeline.Stage[*Run], from int) []pipeline.Stage[*Run] {
	stages = slices.Clone(stages)
	for i := 1; i < from; i++ {
		stages[i] = &finding{stages[i]}
	}
	return stages
}

// finding is a stage that makes nothing.
type finding struct{ pipeline.Stage[*Run] }

// Skip implements [pipeline.Skipper].
func (f *finding) Skip(r *Run) (string, bool) {
	if s, ok := f.Stage.(pipeline.Skipper[*Run]); ok {
		return s.Skip(r)
	}
	return "", false
}

// Run implements [pipeline.Stage].
func (f *finding) Run(ctx context.Context, r *Run) error {
	r.finding = true
	defer func() { r.finding = false }()
	err := f.Stage.Run(ctx, r)
	if errors.Is(err, errNotMade) {
		return &AbsentError{f.String(), err.Error()}
	}
	return err
}

// errNotMade is the error for an entry that a finding stage would make.
var errNotMade = errors.New("not made yet")

// restore takes the package and its signature from the store.
func (r *Run) restore(ctx context.Context, t *trail, made pipeline.Stage[*Run]) error {
	r.commit, r.day = t.Commit, t.Day
	for _, x := range r.products() {
		e, ok := t.Entries[x.kind]
		if !ok || x.Artifact != &r.Verdict && x.Artifact != &r.Signature {
			continue
		}
		got, err := r.Store.Take(ctx, &r.Limits, e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			return &AbsentError{made.String(), err.Error()}
		}
		if err == nil && got.Digest != e.Digest {
			err = fmt.Errorf("%s has digest %s instead of %s", e.Name, got.Digest, e.Digest)
		}
		if err != nil {
			return err
		}
		*x.Artifact = got
	}
	if !r.Verdict.Made() {
		return &AbsentError{r.Verify.String(), "the package is not verified"}
	}
	return nil
}

// handOver makes sure that the shared store has what a span has made, and completes the description of it.
func (r *Run) handOver(ctx context.Context, p *Part, before *trail, from, until int) error {
	t := *before
	t.Package, t.Day = r.Recipe.Name, r.day
	if o := r.origin; r.Checkpoint.Made() {
		t.Hub, t.Access, t.Commit, t.Source, t.Files, t.Entries = o.Hub, o.Access, o.Revision, r.Checkpoint.Digest, o.Files, nil
		p.Checkpoint = r.Checkpoint.Digest
	}
	entries := map[string]PartEntry{}
	for _, x := range r.products() {
		e, ok := t.Entries[x.kind]
		if x.Made() {
			e, ok = PartEntry{x.Name, x.Digest, x.From}, true
			if err := r.Shared.Offer(ctx, x.Name, x.Path); err != nil {
				return fmt.Errorf("the shared store: %w", err)
			}
		}
		if ok {
			p.Entries = append(p.Entries, e)
			e.From = "" // a record is the same on all machines
			entries[x.kind] = e
		}
	}
	t.Entries = entries
	p.Commit = t.Commit
	if r.Verdict.Made() {
		p.Manifest, p.Dir = r.Verdict.Digest, r.Package()
		p.Report = filepath.Join(p.Dir, about.ReportName)
	}
	for i := from; i <= until; i++ {
		var err error
		if p.Record, err = r.writeTrail(ctx, t, i); err != nil {
			return fmt.Errorf("the shared store: %w", err)
		}
	}
	return nil
}

// writeTrail stores what the stages up to one have made, as the newest result of that stage and under its record, which it returns.
func (r *Run) writeTrail(ctx context.Context, t trail, until int) (digest.Digest, error) {
	stages := r.Stages()
	all := t.Entries
	t.Entries = map[string]PartEntry{}
	var names []string
	for _, x := range r.products() {
		if e, ok := all[x.kind]; ok && slices.Index(stages, x.of) <= until {
			t.Entries[x.kind] = e
			names = append(names, e.Name)
		}
	}
	if t.Commit != "" {
		names = append(names, shared.Entry(t.Hub, r.Recipe.Model.Repo, t.Commit))
	}
	b, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	record := digest.Of(b)
	newest, err := r.trailKey(stages[until])
	if err != nil {
		return "", err
	}
	for _, name := range []string{recordNote(record), newest} {
		if err := shared.WriteNote(ctx, r.Shared, name, t, names...); err != nil {
			return "", err
		}
	}
	return record, nil
}
