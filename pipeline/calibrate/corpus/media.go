package corpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
)

// Media names files that a model is shown: a folder of them, or a Parquet file with a column of them.
type Media struct {
	Path   string `json:"path" jsonschema_description:"Folder with files, or a Parquet file, relative to the recipe"`
	SHA256 string `json:"sha256,omitempty" jsonschema:"pattern=^[0-9a-f]{64}$" jsonschema_description:"SHA-256 that the Parquet file must have, or of a folder the listing of the files that are used"`
	Column string `json:"column,omitempty" jsonschema_description:"Column of a Parquet file: bytes, or a struct with bytes, as data sets have; image or audio if absent"`
	Count  int    `json:"count,omitempty" jsonschema:"minimum=1,maximum=4096" jsonschema_description:"Most files that are used, spread evenly over all; 128 if absent"`
}

// Kind is a kind of media.
type Kind struct {
	// Name is its plural, for messages; Extensions are those of files, in lower case, Column is the name of a column of them.
	Name       string
	Extensions []string
	Column     string
}

// The kinds.
var (
	Pictures = Kind{"pictures", []string{".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp"}, "image"}
	Sounds   = Kind{"clips", []string{".flac", ".wav"}, "audio"}
)

const (
	defaultCount = 128
	mostCount    = 4096
	// mostFile bounds a file in bytes, mostFiles the files of a folder that are looked at.
	mostFile  = 64 << 20
	mostFiles = 1 << 20
)

// Validate checks m without reading anything.
func (m Media) Validate() error {
	switch {
	case m.Path == "":
		return fmt.Errorf("no path")
	case m.Count < 0 || m.Count > mostCount:
		return fmt.Errorf("count %d is not from 1 to %d", m.Count, mostCount)
	case m.SHA256 != "" && !digest.IsHex(m.SHA256):
		return fmt.Errorf("sha256 %.80q is not 64 lower-case hex digits", m.SHA256)
	}
	return nil
}

func (m Media) count() int {
	if m.Count == 0 {
		return defaultCount
	}
	return m.Count
}

// Medium is a file of media.
type Medium struct {
	// Name is the path within the folder, with slashes, or names the row.
	Name  string
	Bytes []byte
}

// Chosen describes what [Media.Each] has read.
type Chosen struct {
	// Files were there, Used of them read; Other files of the folder have another extension.
	Files, Used, Other int
	// SHA256 is the digest of the Parquet file, or of the listing of the files used: of each its digest in hex, two spaces, its name and a
	// line feed.
	SHA256 string
}

// Each reads files of a kind, at most Count spread evenly over all in the order of their names or rows, and calls visit with each.
// resolve makes the path usable from the working directory. Errors name path and file.
func (m Media) Each(ctx context.Context, k Kind, resolve func(path string) string, visit func(Medium) error) (c Chosen, err error) {
	path := resolve(m.Path)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("there is no such folder or file")
	case err != nil:
	case info.IsDir() && m.Column != "":
		err = errors.New("a folder has no columns")
	case info.IsDir():
		c, err = m.folder(ctx, k, path, visit)
	default:
		c, err = m.parquet(ctx, k, path, visit)
	}
	if err == nil && m.SHA256 != "" && c.SHA256 != m.SHA256 {
		err = corrupt("the %s have SHA-256 %s, not %s", k.Name, c.SHA256, m.SHA256)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w", m.Path, err)
	}
	return c, err
}

// spread returns which of n are used, in order.
func (m Media) spread(n int) (chosen []int) {
	used := min(n, m.count())
	for i := range used {
		chosen = append(chosen, (2*i+1)*n/(2*used))
	}
	return chosen
}

// folder reads files below a folder. Names that begin with a dot are passed over, links to files followed.
func (m Media) folder(ctx context.Context, k Kind, root string, visit func(Medium) error) (c Chosen, err error) {
	var names []string
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		hidden := path != root && strings.HasPrefix(e.Name(), ".")
		switch {
		case hidden && e.IsDir():
			return filepath.SkipDir
		case hidden || e.IsDir():
			return nil
		case !slices.Contains(k.Extensions, strings.ToLower(filepath.Ext(path))):
			c.Other++
			return nil
		case len(names) == mostFiles:
			return fmt.Errorf("more than %d %s", mostFiles, k.Name)
		}
		name, err := filepath.Rel(root, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no %s in the folder; their extensions are %s", k.Name, strings.Join(k.Extensions, ", "))
	}
	if err != nil {
		return c, err
	}
	slices.Sort(names)
	c.Files = len(names)
	listing := digest.New()
	for _, i := range m.spread(len(names)) {
		if ctx.Err() != nil {
			return c, context.Cause(ctx)
		}
		b, err := readFile(filepath.Join(root, filepath.FromSlash(names[i])))
		if err == nil {
			fmt.Fprintf(listing, "%s  %s\n", digest.Of(b).Hex(), names[i])
			c.Used++
			err = visit(Medium{names[i], b})
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", names[i], err)
		}
	}
	c.SHA256 = listing.Hex()
	return c, nil
}

// readFile reads a file within bounds.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostFile+1))
	return b, errors.Join(err, bounded(len(b)))
}

// bounded rejects a file of too many bytes.
func bounded(n int) error {
	if n > mostFile {
		return fmt.Errorf("more than %d bytes", mostFile)
	}
	return nil
}

// parquet reads a column of a Parquet file.
func (m Media) parquet(ctx context.Context, k Kind, path string, visit func(Medium) error) (c Chosen, err error) {
	if ext := strings.ToLower(filepath.Ext(path)); ext != ".parquet" {
		return c, fmt.Errorf("neither a folder nor a .parquet file")
	}
	r, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer r.Close()
	h := digest.New()
	size, err := io.Copy(h, contextual{ctx, r})
	if err != nil {
		return c, err
	}
	c.SHA256 = h.Hex()
	return c, m.rows(ctx, k, &file{ReaderAt: r, size: size}, &c, visit)
}

// contextual ends reading with its context.
type contextual struct {
	ctx context.Context
	r   io.Reader
}

func (c contextual) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}

// rows reads the chosen rows of a file.
func (m Media) rows(ctx context.Context, k Kind, f *file, c *Chosen, visit func(Medium) error) error {
	meta, err := readFooter(f)
	if err != nil {
		return err
	}
	root, err := newSchema(meta.Schema)
	if err != nil {
		return err
	}
	leaf, err := m.leaf(k, root)
	if err != nil {
		return err
	}
	total := int64(0)
	for i := range meta.RowGroups {
		n := meta.RowGroups[i].NumRows
		if total += n; n < 0 || total > maxRows {
			return corrupt("parquet: a row group of %d rows, after %d", n, total-n)
		}
	}
	if c.Files = int(total); total == 0 {
		return fmt.Errorf("no %s: the file has no rows", k.Name)
	}
	chosen, first := m.spread(c.Files), 0
	for i := range meta.RowGroups {
		group := &meta.RowGroups[i]
		end := first + int(group.NumRows)
		if len(chosen) == 0 || chosen[0] >= end {
			first = end
			continue
		}
		if leaf.index >= len(group.Columns) {
			return corrupt("parquet: a row group has %d columns", len(group.Columns))
		}
		p, err := newPages(f, leaf, &group.Columns[leaf.index].MetaData)
		if err != nil {
			return err
		}
		cells := &cells{pages: p, binary: true}
		for row := first; row < end && len(chosen) > 0 && chosen[0] < end && err == nil; row++ {
			var values []cell
			if values, err = cells.row(); err == nil && row == chosen[0] {
				chosen = chosen[1:]
				c.Used++
				err = shownValue(k, values[0], row+1, visit)
			}
			if err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				err = fmt.Errorf("row %d: %w", row+1, err)
			}
		}
		p.close()
		if err != nil {
			return err
		}
		first = end
	}
	return nil
}

// maxRows bounds the rows of a file.
const maxRows = 1 << 31

// shownValue visits the value of a row.
func shownValue(k Kind, v cell, row int, visit func(Medium) error) error {
	if v.null || v.text == "" {
		return fmt.Errorf("no bytes; %s must be in the file, not next to it", k.Name)
	}
	if err := bounded(len(v.text)); err != nil {
		return err
	}
	return visit(Medium{fmt.Sprintf("row %d", row), []byte(v.text)})
}

// leaf returns the column with the bytes of files.
func (m Media) leaf(k Kind, root *node) (*leaf, error) {
	name := m.Column
	if name == "" {
		name = k.Column
	}
	c := root.child(name)
	if c == nil {
		var names []string
		for _, c := range root.children {
			names = append(names, c.name)
		}
		return nil, fmt.Errorf("no column %s; there are %s", name, listed(names))
	}
	if b := c.child("bytes"); b != nil {
		c = b
	}
	if c.leaf == nil || !c.leaf.text || c.leaf.reps != 0 {
		return nil, fmt.Errorf("column %s does not hold bytes, or a struct with bytes, of one file in a row", name)
	}
	return c.leaf, nil
}
