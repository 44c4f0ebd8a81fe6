package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// The two directories in which a package is assembled. Verified files are in the first, under their names; unverified
// ones are in the second, under their digests.
const (
	wholeName = "package"
	partsName = "parts"
)

// gathering assembles a package from a place and from files on this machine.
type gathering struct {
	d      Place
	from   place.Origin
	m      *manifest.Manifest
	own    []place.Cargo      // unlisted files: the signature if there is one, and the manifest last
	work   string             // contains the two directories
	old    *manifest.Manifest // of the package in oldDir, nil if there is none
	oldDir string
	o      PullOptions

	whole, parts    *os.Root
	dirs            []string // below whole
	report          sync.Mutex
	fetched, reused atomic.Int64
}

// run makes work/package a complete and durable copy, with its manifest written last.
func (g *gathering) run(ctx context.Context) (err error) {
	jobs, err := g.jobs()
	if err != nil {
		return err
	}
	if err := g.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.whole.Close(), g.parts.Close()) }()
	if err := g.room(); err != nil {
		return err
	}
	if err := g.makeDirs(); err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel(g.o.Files))
	for _, files := range jobs {
		group.Go(func() error { return g.content(gctx, files) })
	}
	if err := group.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	return g.finish(ctx)
}

func parallel(n int) int {
	if n > 0 {
		return n
	}
	return 4
}

// jobs groups the files by content, so that each content is fetched once.
func (g *gathering) jobs() ([][]manifest.File, error) {
	var jobs [][]manifest.File
	at := map[string]int{}
	for _, f := range g.m.Files {
		i, ok := at[f.SHA256]
		if !ok {
			at[f.SHA256] = len(jobs)
			jobs = append(jobs, []manifest.File{f})
			continue
		}
		if jobs[i][0].Size != f.Size {
			return nil, fmt.Errorf("%s and %s have the same digest and different sizes: %w", jobs[i][0].Name, f.Name, tensor.ErrCorrupt)
		}
		jobs[i] = append(jobs[i], f)
	}
	return jobs, nil
}

// open creates the directories, or reuses those of an earlier run. They are never links.
func (g *gathering) open() error {
	for _, dir := range []string{g.work, filepath.Join(g.work, wholeName), filepath.Join(g.work, partsName)} {
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			info, serr := os.Lstat(dir)
			if err = serr; err == nil && !info.IsDir() {
				err = fmt.Errorf("%s is not a directory; move it away", dir)
			}
		}
		if err != nil {
			return err
		}
	}
	var err error
	if g.whole, err = os.OpenRoot(filepath.Join(g.work, wholeName)); err != nil {
		return err
	}
	if g.parts, err = os.OpenRoot(filepath.Join(g.work, partsName)); err != nil {
		return errors.Join(err, g.whole.Close())
	}
	return nil
}

// room compares the size of missing files with the free space.
func (g *gathering) room() error {
	need := g.m.Bytes()
	for _, c := range g.own {
		need += c.Size
	}
	for _, root := range []*os.Root{g.whole, g.parts} {
		err := fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err == nil {
				need -= min(info.Size(), disk.Allocated(info))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return checkSpace(g.work, need)
}

// makeDirs makes the directories of the package. Existing links are rejected, because files would be written through
// them.
func (g *gathering) makeDirs() error {
	made := map[string]bool{}
	for _, f := range g.m.Files {
		dir := path.Dir(f.Name)
		if dir == "." || made[dir] {
			continue
		}
		if err := g.whole.MkdirAll(filepath.FromSlash(dir), 0o755); err != nil {
			return err
		}
		for ; dir != "." && !made[dir]; dir = path.Dir(dir) {
			info, err := g.whole.Lstat(filepath.FromSlash(dir))
			if err != nil {
				return err
			}
			if !info.IsDir() {
				return fmt.Errorf("%s is not a directory; move it away", filepath.Join(g.work, wholeName, dir))
			}
			made[dir] = true
			g.dirs = append(g.dirs, dir)
		}
	}
	return nil
}

// content fetches one content and gives it all its names.
func (g *gathering) content(ctx context.Context, files []manifest.File) error {
	var missing []manifest.File
	for _, f := range files {
		ok, err := g.has(ctx, f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if ok {
			g.reused.Add(f.Size)
		} else {
			missing = append(missing, f)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	first := missing[0]
	if len(missing) < len(files) {
		// Another name already has the content.
		if err := g.copies(ctx, g.whole, files, missing); err == nil || ctx.Err() != nil {
			return err
		}
	}
	if err := g.part(ctx, first); err != nil {
		return fmt.Errorf("%s: %w", first.Name, err)
	}
	if err := g.name(first); err != nil {
		return err
	}
	return g.copies(ctx, g.whole, []manifest.File{first}, missing[1:])
}

// has reports whether a file exists under its name. A wrong one is removed, because the directory is ours.
func (g *gathering) has(ctx context.Context, f manifest.File) (bool, error) {
	r, err := f.OpenIn(g.whole)
	if err == nil {
		got, herr := manifest.Hash(ctx, r)
		if err = errors.Join(herr, r.Close()); err == nil {
			err = f.Match(got)
		}
	}
	if err == nil || !errors.Is(err, tensor.ErrCorrupt) {
		return err == nil, err
	}
	if err := g.whole.RemoveAll(filepath.FromSlash(f.Name)); err != nil {
		return false, err
	}
	return false, nil
}

// copies makes the missing files of a content from one of those below root that has it.
func (g *gathering) copies(ctx context.Context, root *os.Root, from, missing []manifest.File) error {
	for _, f := range missing {
		err := fs.ErrNotExist
		for _, have := range from {
			if have.Name == f.Name {
				continue
			}
			if err = g.copy(ctx, root, have); err == nil {
				break
			}
		}
		if err == nil {
			err = g.name(f)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		g.reused.Add(f.Size)
	}
	return nil
}

// part fetches a content into the parts directory, from the package that is replaced or from the place.
func (g *gathering) part(ctx context.Context, f manifest.File) error {
	if err := g.checkPart(f); err != nil {
		return err
	}
	if g.old != nil {
		for _, have := range g.old.Files {
			if have.SHA256 != f.SHA256 || have.Size != f.Size {
				continue
			}
			old, err := os.OpenRoot(g.oldDir)
			if err != nil {
				return err
			}
			err = g.copy(ctx, old, have)
			old.Close()
			if err == nil {
				g.progress(f, f.Size)
				g.reused.Add(f.Size)
				return nil
			}
			if !errors.Is(err, tensor.ErrCorrupt) {
				return err
			}
		}
	}
	t := g.o.Transfer
	t.Progress = func(done int64) { g.progress(f, done) }
	var came atomic.Int64
	open := g.from.Range(f)
	counted := func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
		body, err := open(ctx, off, n)
		if err != nil {
			return nil, err
		}
		return &counter{body, &came}, nil
	}
	err := transfer.Fetch(ctx, g.partPath(f), transfer.Blob{Size: f.Size, SHA256: f.SHA256}, counted, t)
	g.fetched.Add(came.Load())
	g.reused.Add(max(0, f.Size-came.Load()))
	if err == nil {
		g.progress(f, f.Size)
	}
	return manifest.Damaged(err)
}

// progress calls Progress, one call at a time.
func (g *gathering) progress(f manifest.File, done int64) {
	if g.o.Progress == nil {
		return
	}
	g.report.Lock()
	defer g.report.Unlock()
	g.o.Progress(f.Name, done, f.Size)
}

func (g *gathering) partPath(f manifest.File) string {
	return filepath.Join(g.work, partsName, f.SHA256)
}

// checkPart rejects a part that is a link or a directory.
func (g *gathering) checkPart(f manifest.File) error {
	info, err := os.Lstat(g.partPath(f))
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file; move it away", g.partPath(f))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// copy makes a part from a file below root; tensor.ErrCorrupt if the file has changed.
func (g *gathering) copy(ctx context.Context, root *os.Root, f manifest.File) error {
	if err := g.parts.RemoveAll(f.SHA256); err != nil {
		return err
	}
	if err := g.d.copyDurable(ctx, place.File(root, f), g.partPath(f)); err != nil {
		return errors.Join(err, g.parts.RemoveAll(f.SHA256))
	}
	return nil
}

// name renames a complete part to its name in the package.
func (g *gathering) name(f manifest.File) error {
	to := filepath.Join(g.work, wholeName, filepath.FromSlash(f.Name))
	return g.d.do("name "+path.Base(f.Name), func() error { return os.Rename(g.partPath(f), to) })
}

// finish writes the manifest and its signature and makes all names durable.
func (g *gathering) finish(ctx context.Context) error {
	extra, err := g.m.Extra(g.whole.Name())
	if err != nil {
		return err
	}
	if len(extra) > 0 {
		return fmt.Errorf("%s is not part of the package; move it away", filepath.Join(g.work, wholeName, filepath.FromSlash(extra[0])))
	}
	for _, name := range []string{manifest.FileName, manifest.SignatureName} { // left by an earlier run
		if err := g.whole.RemoveAll(name); err != nil {
			return err
		}
	}
	for _, c := range g.own {
		if err := g.d.copyDurable(ctx, c, filepath.Join(g.work, wholeName, c.Name)); err != nil {
			return fmt.Errorf("write %s: %w", c.Name, err)
		}
	}
	for _, dir := range append(g.dirs, ".") {
		if err := g.d.do("sync directory", func() error { return disk.SyncDir(filepath.Join(g.work, wholeName, filepath.FromSlash(dir))) }); err != nil {
			return err
		}
	}
	return nil
}

// counter counts received bytes.
type counter struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}
