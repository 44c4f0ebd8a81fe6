package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/mnn"
)

func (t *tool) diffCommand() *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "compare two packages",
		ArgsUsage: "A B",
		Description: "Compares files byte by byte, and if both packages have a manifest, recipes, tensors and measurements.\n" +
			"The exit code is 0 when the files are equal, 1 when they differ, and 3 when a file does not match its own manifest.",
		Flags:              []cli.Flag{&cli.BoolFlag{Name: "tensors", Usage: "list every tensor that differs"}, jsonFlag()},
		CustomHelpTemplate: help("llmexport diff dist/qwen3-0.6b-int4 dist/qwen3-0.6b-int8"),
		Action:             t.diff,
	}
}

// difference is how two packages differ, in JSON.
type difference struct {
	Equal   bool         `json:"equal"`
	Recipe  []recipeDiff `json:"recipe"`
	Files   []fileDiff   `json:"files"`
	Tensors []tensorDiff `json:"tensors"`
	Metrics []metricDiff `json:"metrics"`
}

// recipeDiff is an option that differs between the recipes; its value is empty in a recipe without it.
type recipeDiff struct {
	Path string `json:"path"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// fileDiff is a file that differs. Its size is -1 in a package that lacks it.
type fileDiff struct {
	Name string `json:"name"`
	A    int64  `json:"a_bytes"`
	B    int64  `json:"b_bytes"`
}

// tensorDiff is a tensor that is stored differently. Its spec is empty in a package that lacks it.
type tensorDiff struct {
	// Part is the part of the package that reads the tensor; empty for the text model.
	Part string `json:"part,omitempty"`
	Name string `json:"name"`
	Op   string `json:"op"`
	A    string `json:"a_spec"`
	B    string `json:"b_spec"`
}

// metricDiff is a measurement that differs.
type metricDiff struct {
	Name string   `json:"name"`
	A    *float64 `json:"a"`
	B    *float64 `json:"b"`
}

func (t *tool) diff(c *cli.Context) error {
	args, err := arguments(c, "A", "B")
	if err != nil {
		return err
	}
	d, err := compare(c.Context, args[0], args[1])
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = t.printJSON(d)
	} else {
		err = t.show(func(w io.Writer) error { return d.write(w, c.Bool("tensors")) })
	}
	if err == nil && !d.Equal {
		err = errDiffer
		for _, dir := range args {
			if bad := d.damage(c.Context, dir); bad != nil {
				err = fmt.Errorf("%s: %w", dir, bad)
			}
		}
	}
	return err
}

// damage returns an error if a file that differs does not match the manifest of its own package.
func (d *difference) damage(ctx context.Context, dir string) error {
	m, err := readManifest(dir)
	if err != nil || m == nil {
		return err
	}
	m.Files = slices.DeleteFunc(m.Files, func(f manifest.File) bool {
		return !slices.ContainsFunc(d.Files, func(x fileDiff) bool { return x.Name == f.Name })
	})
	return m.Damage(ctx, dir)
}

// compare compares two package directories.
func compare(ctx context.Context, a, b string) (*difference, error) {
	d := &difference{Recipe: []recipeDiff{}, Files: []fileDiff{}, Tensors: []tensorDiff{}, Metrics: []metricDiff{}}
	inA, err := listFiles(a)
	if err != nil {
		return nil, err
	}
	inB, err := listFiles(b)
	if err != nil {
		return nil, err
	}
	for _, name := range union(inA, inB) {
		sizeA, okA := inA[name]
		sizeB, okB := inB[name]
		switch {
		case !okA:
			d.Files = append(d.Files, fileDiff{name, -1, sizeB})
			continue
		case !okB:
			d.Files = append(d.Files, fileDiff{name, sizeA, -1})
			continue
		}
		same := sizeA == sizeB
		if same {
			if same, err = sameBytes(ctx, filepath.Join(a, name), filepath.Join(b, name)); err != nil {
				return nil, err
			}
		}
		if !same {
			d.Files = append(d.Files, fileDiff{name, sizeA, sizeB})
		}
	}
	d.Equal = len(d.Files) == 0
	ma, err := readManifest(a)
	if err != nil {
		return nil, err
	}
	mb, err := readManifest(b)
	if err != nil {
		return nil, err
	}
	if ma != nil && mb != nil {
		d.compareManifests(ma, mb)
		d.Recipe = compareRecipes(ma.Recipe, mb.Recipe)
	}
	return d, nil
}

// readManifest returns nil for a package without one.
func readManifest(dir string) (*manifest.Manifest, error) {
	m, err := manifest.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return m, err
}

func (d *difference) compareManifests(a, b *manifest.Manifest) {
	type key struct{ part, name, op string }
	keyOf := func(t manifest.Tensor) key { return key{t.Part, t.Name, t.Op} }
	index := func(m *manifest.Manifest) map[key]manifest.Tensor {
		all := make(map[key]manifest.Tensor, len(m.Tensors))
		for _, t := range m.Tensors {
			all[keyOf(t)] = t
		}
		return all
	}
	inA, inB := index(a), index(b)
	both := append(slices.Clone(a.Tensors), slices.DeleteFunc(slices.Clone(b.Tensors), func(t manifest.Tensor) bool {
		_, ok := inA[keyOf(t)]
		return ok
	})...)
	for _, t := range both {
		k := keyOf(t)
		if x, y := inA[k], inB[k]; x.Spec != y.Spec || x.SHA256 != y.SHA256 {
			d.Tensors = append(d.Tensors, tensorDiff{t.Part, t.Name, t.Op, x.Spec, y.Spec})
		}
	}
	for _, n := range union(a.Metrics, b.Metrics) {
		m := metricDiff{Name: n}
		if v, ok := a.Metrics[n]; ok {
			m.A = &v.Value
		}
		if v, ok := b.Metrics[n]; ok {
			m.B = &v.Value
		}
		d.Metrics = append(d.Metrics, m)
	}
}

// write prints what the recipes ask for differently, then what follows from it.
func (d *difference) write(w io.Writer, tensors bool) error {
	if d.Equal {
		_, err := fmt.Fprintln(w, "equal")
		return err
	}
	bytesOf := func(n int64) string {
		if n < 0 {
			return "-"
		}
		return fmt.Sprint(n)
	}
	s := sheet.New("recipe", "A", "B")
	for _, x := range d.Recipe {
		s.Row(x.Path, orDash(x.A), orDash(x.B))
	}
	errs := []error{s.Write(w, true)}
	s = sheet.New("file", ">bytes in A", ">bytes in B")
	for _, f := range d.Files {
		s.Row(f.Name, bytesOf(f.A), bytesOf(f.B))
	}
	errs = append(errs, s.Write(w, len(d.Recipe) == 0))

	if !tensors {
		errs = append(errs, d.writeRoles(w))
	}
	for _, part := range d.parts() {
		title := "tensor"
		if part != "" {
			title += " in " + mnn.WeightFile(part)
		}
		s = sheet.New(title, "spec in A", "spec in B")
		for _, x := range d.Tensors {
			if x.Part != part || !tensors {
				continue
			}
			b := x.B
			if x.A == x.B {
				b += ", other bytes"
			}
			s.Row(x.Name, orDash(x.A), orDash(b))
		}
		errs = append(errs, s.Write(w, false))
	}

	number := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.6g", *v)
	}
	s = sheet.New("measure", ">A", ">B")
	for _, m := range d.Metrics {
		s.Row(m.Name, number(m.A), number(m.B))
	}
	return errors.Join(append(errs, s.Write(w, false))...)
}

// writeRoles counts the tensors that differ by role.
func (d *difference) writeRoles(w io.Writer) error {
	type group struct{ part, role, a, b string }
	count := map[group]int{}
	var order []group
	for _, x := range d.Tensors {
		g := group{x.Part, string(appendRole(nil, x.Name)), orDash(x.A), orDash(x.B)}
		if x.A == x.B {
			g.b = "the same, other values"
		}
		if count[g]++; count[g] == 1 {
			order = append(order, g)
		}
	}
	s := sheet.New(">tensors", "role", "spec in A", "spec in B")
	for _, g := range order {
		role := g.role
		if g.part != "" {
			role += " in " + mnn.WeightFile(g.part)
		}
		s.Row(fmt.Sprintf("%d x", count[g]), role, g.a, g.b)
	}
	return s.Write(w, false)
}

// parts lists the parts whose tensors differ, the text model first.
func (d *difference) parts() []string {
	list := []string{""}
	for _, x := range d.Tensors {
		list = append(list, x.Part)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// union returns the keys of both maps, sorted.
func union[V any](a, b map[string]V) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}

// listFiles maps the names of the files below dir, with forward slashes, to their sizes.
func listFiles(dir string) (map[string]int64, error) {
	all := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		st, err := os.Stat(path) // follows links
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		all[filepath.ToSlash(rel)] = st.Size()
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s contains no files", strings.TrimSpace(dir))
	}
	return all, err
}

// sameBytes compares two files of the same size.
func sameBytes(ctx context.Context, a, b string) (bool, error) {
	fa, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer fa.Close()
	fb, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer fb.Close()
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, errA := io.ReadFull(fa, x)
		m, errB := io.ReadFull(fb, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		for _, err := range []error{errA, errB} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if errA != nil || errB != nil {
			return true, nil
		}
	}
}
