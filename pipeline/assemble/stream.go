package assemble

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/verify"
)

// streamWriter writes the weight files of a source whose shards arrive one after another. Each item is written to its place, and
// compared with its source, as soon as the last of its shards has arrived; a shard is removed once nothing needs it. The next
// one is fetched meanwhile. A journal lets a killed run resume with the missing items, and fetch only their shards.
type streamWriter struct {
	dir       string
	entry     string // of the store
	plan      *plan.Plan
	src       *source.Source
	closeness quant.Closeness
	hub       hub.Options

	files   []*os.File // of the parts
	journal *journal
	sums    [][]string        // of items by part, empty for those that are missing
	shares  [][]float64       // worst error of items, relative to their bounds
	ties    map[string]string // SHA-256 of the tied tensors read so far
	written int64
}

// spoolDir holds the downloaded shards, in the directory of the weights.
const spoolDir = "source"

// write returns the digests of the weight files, and the finding of the comparison.
func (w *streamWriter) write(ctx context.Context, o plan.WriteOptions) (_ *sums, found *verify.Finding, err error) {
	var closeAll func() error
	if w.files, closeAll, err = openFiles(w.dir, w.plan); err != nil {
		return nil, nil, err
	}
	defer closeAll()
	if err := w.resume(ctx); err != nil {
		return nil, nil, err
	}
	defer w.journal.file.Close()
	visits := w.left()
	if err := w.checkSpace(visits); err != nil {
		return nil, nil, err
	}
	if err := w.pass(ctx, visits, o); err != nil {
		return nil, nil, err
	}
	s := &sums{items: w.sums}
	// Items were written in the order of shards, so the digests need a second pass over the files.
	for k, f := range w.files {
		h := digest.New()
		if _, err := io.Copy(h, transfer.Cancellable(ctx, io.NewSectionReader(f, 0, w.plan.Parts[k].Bytes))); err != nil {
			return nil, nil, err
		}
		s.files = append(s.files, h.Hex())
	}
	return s, w.finding(), errors.Join(closeAll(), w.journal.replace(w.lines()), os.RemoveAll(w.spool("")))
}

// lines lists all items in the order of the plan: that of writing depends on where a killed run was resumed, and the bytes of an
// entry must not.
func (w *streamWriter) lines() (all []line) {
	for k, sums := range w.sums {
		for i, sum := range sums {
			all = append(all, line{Part: k, Item: i, Sum: sum, Share: w.shares[k][i]})
		}
	}
	for _, name := range tied(w.src) {
		all = append(all, line{Tie: name, Sum: w.ties[name]})
	}
	return all
}

// left lists the shards that have to be read for the missing items.
func (w *streamWriter) left() []visit {
	items := slices.DeleteFunc(all(w.plan), func(x place) bool { return w.sums[x.part][x.item] != "" })
	ties := slices.DeleteFunc(tied(w.src), func(name string) bool { return w.ties[name] != "" })
	return visits(w.src, w.plan, items, ties)
}

// checkSpace rejects files that the disk cannot hold.
func (w *streamWriter) checkSpace(visits []visit) error {
	need := w.plan.Bytes() - w.written
	var held int64
	for _, v := range visits {
		held = max(held, v.held)
	}
	if w.src.Elsewhere != nil {
		need += held
	}
	return disk.CheckSpace(w.dir, need)
}

// pass fetches the shards and visits them in order.
func (w *streamWriter) pass(ctx context.Context, visits []visit, o plan.WriteOptions) error {
	if err := w.sweep(visits); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	coming := make(chan string) // unbuffered: one shard is downloaded while another is read
	g.Go(func() error {
		defer close(coming)
		for _, v := range visits {
			path, err := w.get(ctx, v.shard)
			if err != nil {
				return err
			}
			select {
			case coming <- path:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	g.Go(func() error {
		for _, v := range visits {
			path, ok := <-coming
			if !ok {
				return context.Cause(ctx)
			}
			if err := w.visit(ctx, v, path, o); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// spool is the path of a downloaded shard.
func (w *streamWriter) spool(shard string) string { return filepath.Join(w.dir, spoolDir, shard) }

// sweep removes shards of a killed run that are no longer needed.
func (w *streamWriter) sweep(visits []visit) error {
	entries, err := os.ReadDir(w.spool(""))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		// Partial downloads have longer names.
		if !slices.ContainsFunc(visits, func(v visit) bool { return strings.HasPrefix(e.Name(), v.shard) }) {
			err = errors.Join(err, os.RemoveAll(w.spool(e.Name())))
		}
	}
	return err
}

// get fetches a shard: from the source's directory or the spool if it is there with the right digest, else from the hub.
func (w *streamWriter) get(ctx context.Context, shard string) (string, error) {
	if shard == "" { // a model of constants
		return "", nil
	}
	inDir := filepath.Join(w.src.Dir, shard)
	if w.src.Elsewhere == nil {
		return inDir, nil
	}
	spooled := w.spool(shard)
	for _, path := range []string{inDir, spooled} {
		if ok, err := w.whole(ctx, shard, path); ok || err != nil {
			return path, err
		}
	}
	if err := os.RemoveAll(spooled); err != nil {
		return "", err
	}
	zerolog.Ctx(ctx).Info().Str("file", shard).Int64("bytes", w.src.Heads[shard].Size).Msg("fetching")
	return spooled, hub.FetchFile(ctx, w.src.Elsewhere, shard, spooled, w.hub)
}

// whole reports whether the file at path is a shard.
func (w *streamWriter) whole(ctx context.Context, shard, path string) (bool, error) {
	i := slices.IndexFunc(w.src.Files, func(f hub.File) bool { return f.Name == shard })
	if st, err := os.Stat(path); i < 0 || err != nil || st.Size() != w.src.Files[i].Size {
		return false, nil
	}
	got, err := manifest.HashFile(ctx, path)
	return err == nil && got.SHA256 == w.src.Files[i].SHA256, ctx.Err()
}

// visit writes the items that a shard completes, and removes shards that are no longer needed.
func (w *streamWriter) visit(ctx context.Context, v visit, path string, o plan.WriteOptions) error {
	if v.shard != "" {
		if err := w.src.Checkpoint.Attach(v.shard, path); err != nil {
			return err
		}
	}
	for _, name := range v.ties {
		if err := w.tie(ctx, name); err != nil {
			return err
		}
	}
	for k := range w.plan.Parts {
		if err := w.writeItems(ctx, k, v.items, o); err != nil {
			return err
		}
	}
	for _, shard := range v.drop {
		if err := w.src.Checkpoint.Detach(shard); err != nil {
			return err
		}
		if err := os.Remove(w.spool(shard)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeItems writes those of the items that belong to part k.
func (w *streamWriter) writeItems(ctx context.Context, k int, items []place, o plan.WriteOptions) error {
	for _, x := range items {
		if x.part == k {
			o.Items = append(o.Items, x.item)
		}
	}
	if len(o.Items) == 0 {
		return nil
	}
	part, before, progress := w.plan.Parts[k], w.written, o.Progress
	o.Compare, o.Compared = w.compare, func(i int, share float64) { w.shares[k][i] = share }
	o.Done = func(i int, sum string) error {
		w.sums[k][i] = sum
		w.written += part.Items[i].Size()
		return w.journal.note(line{Part: k, Item: i, Sum: sum, Share: w.shares[k][i]})
	}
	o.Progress = func(done int64) { progress(before + done) }
	_, err := part.Begin(ctx, w.src.Weights, o).Finish(disk.NewWriter(w.files[k], 0), o.Done, o.Progress)
	return err
}

// compare compares stored rows with those of the source.
func (w *streamWriter) compare(it *plan.Item, codes, alpha []byte, rows []float32) (share float64, err error) {
	if !it.Matrix() { // the floats are stored as they are
		return 0, nil
	}
	return verify.CompareWritten(w.closeness, it.Choice.Spec, it.Layout.Cols, codes, alpha, rows)
}

// tie records the digest of a tied tensor and compares it with that of the other.
func (w *streamWriter) tie(ctx context.Context, name string) error {
	r, err := w.src.Weights.Open(name)
	if err != nil {
		return err
	}
	h := digest.New()
	if _, err := io.Copy(h, transfer.Cancellable(ctx, r)); err != nil {
		return err
	}
	w.ties[name] = h.Hex()
	if err := w.tiesHold(); err != nil {
		return err
	}
	return w.journal.note(line{Tie: name, Sum: w.ties[name]})
}

// tiesHold compares the tied tensors read so far.
func (w *streamWriter) tiesHold() error {
	for dup, of := range w.src.Ties {
		if a, b := w.ties[dup], w.ties[of]; a != "" && b != "" && a != b {
			return source.Untied(dup, of)
		}
	}
	return nil
}

// finding is the result of comparing all items.
func (w *streamWriter) finding() *verify.Finding {
	worst, name := 0.0, ""
	list, shares := tensorsOf(w.plan, w.sums), slices.Concat(w.shares...)
	for i, t := range list {
		if shares[i] > worst {
			worst, name = shares[i], t.Name
		}
	}
	f := verify.Compared(len(list), worst, name)
	return &f
}

// resume rewrites the journal with those lines of an earlier run that agree with the file.
func (w *streamWriter) resume(ctx context.Context) (err error) {
	w.ties = map[string]string{}
	n, tied, found := 0, tied(w.src), 0
	for k, part := range w.plan.Parts {
		n += len(part.Items)
		w.sums, w.shares = append(w.sums, make([]string, len(part.Items))), append(w.shares, make([]float64, len(part.Items)))
		if err := w.files[k].Truncate(part.Bytes); err != nil {
			return err
		}
	}
	w.journal, err = openJournal(w.dir, w.entry, func(l line) (bool, error) {
		ok, err := w.take(ctx, l, tied)
		if ok {
			found++
		}
		return ok, err
	})
	if found > 0 {
		zerolog.Ctx(ctx).Info().Int("tensors", found).Int("of", n).Msg("resuming with the tensors of an earlier run")
	}
	return err
}

// take uses a line of the journal if the file's bytes agree with it, and reports whether they do.
func (w *streamWriter) take(ctx context.Context, l line, tied []string) (bool, error) {
	if l.Tie != "" {
		if b, err := hex.DecodeString(l.Sum); err != nil || len(b) != sha256.Size || !slices.Contains(tied, l.Tie) {
			return false, nil
		}
		w.ties[l.Tie] = l.Sum
		return true, w.tiesHold()
	}
	if l.Part < 0 || l.Part >= len(w.sums) || l.Item < 0 || l.Item >= len(w.sums[l.Part]) || w.sums[l.Part][l.Item] != "" {
		return false, nil
	}
	it := &w.plan.Parts[l.Part].Items[l.Item]
	ok, err := holds(ctx, w.files[l.Part], it, l.Sum)
	if ok {
		w.sums[l.Part][l.Item], w.shares[l.Part][l.Item] = l.Sum, l.Share
		w.written += it.Size()
	}
	return ok, err
}
