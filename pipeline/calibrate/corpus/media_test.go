package corpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// shown reads media and returns what was visited.
func shown(t *testing.T, m Media, k Kind) (got []string, c Chosen, err error) {
	t.Helper()
	c, err = m.Each(t.Context(), k, func(path string) string { return path }, func(f Medium) error {
		got = append(got, f.Name+": "+string(f.Bytes))
		return nil
	})
	return got, c, err
}

// A folder gives its files in the order of their names, spread evenly where there are too many.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte("<"+name+">"), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"b.JPG", "a/z.png", "a.webp", "c.jpeg", "readme.md", ".hidden/x.png", ".y.png", "a/notes.txt", "d.gif", "e.bmp", "f.wav"} {
		write(name)
	}
	if err := os.Symlink(filepath.Join(dir, "d.gif"), filepath.Join(dir, "link.png")); err != nil {
		t.Skip(err)
	}
	got, c, err := shown(t, Media{Path: dir}, Pictures)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a.webp: <a.webp>", "a/z.png: <a/z.png>", "b.JPG: <b.JPG>", "c.jpeg: <c.jpeg>", "d.gif: <d.gif>", "e.bmp: <e.bmp>", "link.png: <d.gif>"}
	if d := cmp.Diff(want, got); d != "" || c.Files != 7 || c.Used != 7 || c.Other != 3 {
		t.Errorf("%+v: %s", c, d)
	}
	got, some, err := shown(t, Media{Path: dir, Count: 3}, Pictures)
	if want := []string{want[1], want[3], want[5]}; err != nil || !slices.Equal(got, want) || some.Files != 7 || some.Used != 3 {
		t.Errorf("%q, %+v: %v", got, some, err)
	}
	listing := ""
	for _, name := range []string{"a/z.png", "c.jpeg", "e.bmp"} {
		listing += fmt.Sprintf("%s  %s\n", digest.Of([]byte("<"+name+">")).Hex(), name)
	}
	if sum := digest.Of([]byte(listing)).Hex(); some.SHA256 != sum {
		t.Errorf("digest %s, want %s", some.SHA256, sum)
	}
	if _, _, err := shown(t, Media{Path: dir, Count: 3, SHA256: some.SHA256}, Pictures); err != nil {
		t.Error(err)
	}
	if _, _, err := shown(t, Media{Path: dir, SHA256: some.SHA256}, Pictures); !errors.Is(err, tensor.ErrCorrupt) {
		t.Error(err)
	}
	if got, _, err := shown(t, Media{Path: dir}, Sounds); err != nil || !slices.Equal(got, []string{"f.wav: <f.wav>"}) {
		t.Errorf("%q: %v", got, err)
	}
}

// Columns of bytes, and of structs as data sets have them, give the values of rows, over row groups.
func TestMediaColumns(t *testing.T) {
	var want []string
	for i := range 11 {
		b := make([]byte, 40+i)
		for k := range b {
			b[k] = byte(i*7 + k*k)
		}
		want = append(want, fmt.Sprintf("row %d: %s", i+1, b))
	}
	path := filepath.Join("testdata", "files.parquet")
	for _, column := range []string{"", "image", "raw"} {
		got, c, err := shown(t, Media{Path: path, Column: column}, Pictures)
		if err != nil || !slices.Equal(got, want) || c.Files != 11 || c.Used != 11 || c.Other != 0 {
			t.Errorf("%s: %d rows, %+v: %v", column, len(got), c, err)
		}
	}
	got, c, err := shown(t, Media{Path: path, Count: 2}, Pictures)
	if err != nil || !slices.Equal(got, []string{want[2], want[8]}) || c.Used != 2 {
		t.Errorf("%d rows, %+v: %v", len(got), c, err)
	}
	b, err := os.ReadFile(path)
	if err != nil || c.SHA256 != digest.Of(b).Hex() {
		t.Errorf("digest %s: %v", c.SHA256, err)
	}
}

func TestMediaRefused(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(text, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d.png"), 0o777); err != nil {
		t.Fatal(err)
	}
	set := filepath.Join("testdata", "files.parquet")
	for _, tt := range []struct {
		m    Media
		want string
	}{
		{Media{Path: filepath.Join(dir, "none")}, "there is no such folder or file"},
		{Media{Path: text}, "neither a folder nor a .parquet file"},
		{Media{Path: dir}, "no pictures in the folder; their extensions are .bmp, .gif"},
		{Media{Path: dir, Column: "image"}, "a folder has no columns"},
		{Media{Path: set, Column: "photo"}, `no column photo; there are ["image" "raw" "many" "away"]`},
		{Media{Path: set, Column: "many"}, "column many does not hold bytes"},
		{Media{Path: set, Column: "away"}, "row 1: no bytes; pictures must be in the file, not next to it"},
		{Media{Path: filepath.Join("testdata", "snappy.parquet"), Column: "id"}, "column id does not hold bytes"},
		{Media{Path: set, SHA256: strings.Repeat("0", 64)}, "have SHA-256"},
	} {
		if _, _, err := shown(t, tt.m, Pictures); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.m.Path) {
			t.Errorf("%+v: %v, want %s", tt.m, err, tt.want)
		}
	}
	for _, m := range []Media{{}, {Path: "a", Count: -1}, {Path: "a", Count: 5000}, {Path: "a", SHA256: "0"}} {
		if m.Validate() == nil {
			t.Errorf("%+v is valid", m)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, path := range []string{dir, set} {
		_, err := Media{Path: path}.Each(ctx, Pictures, func(path string) string { return path }, func(Medium) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// FuzzMedia: rows of any file are visited in order, at most as many as are asked for, or there is an error.
func FuzzMedia(f *testing.F) {
	for _, name := range []string{"files.parquet", "snappy.parquet"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		for _, column := range []string{"image", "raw", "many", "away", "text"} {
			f.Add(b, column, 3)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, column string, count int) {
		m := Media{Path: "x.parquet", Column: column, Count: count}
		if m.Validate() != nil {
			return
		}
		var c Chosen
		n := 0
		err := m.rows(t.Context(), Pictures, &file{ReaderAt: bytes.NewReader(b), size: int64(len(b))}, &c, func(f Medium) error {
			n++
			if len(f.Bytes) == 0 || len(f.Bytes) > mostFile {
				t.Fatalf("%d bytes", len(f.Bytes))
			}
			return nil
		})
		if n > m.count() || err == nil && n != min(m.count(), c.Files) {
			t.Fatalf("%d of %d rows: %v", n, c.Files, err)
		}
	})
}
