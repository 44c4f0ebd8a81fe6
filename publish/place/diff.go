package place

import (
	"errors"
	"slices"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Compare compares what a place holds, the SHA-256 of every file by its name, with what a package consists of. Upload
// counts the new and changed files; the status is the caller's. The signature of a manifest that stays is kept.
func Compare(had map[string]string, files []Cargo) Diff {
	var d Diff
	wanted := map[string]bool{}
	for _, f := range files {
		wanted[f.Name] = true
		switch was, ok := had[f.Name]; {
		case ok && was == f.SHA256:
			d.Keep = append(d.Keep, f.Name)
			continue
		case ok:
			d.Change = append(d.Change, f.Name)
		default:
			d.Add = append(d.Add, f.Name)
		}
		d.Upload += f.Size
	}
	for name := range had {
		if !wanted[name] {
			d.Drop(name)
		}
	}
	d.Sort()
	return d
}

// Drop notes a file of the place that the package does not have, once the others are noted.
func (d *Diff) Drop(name string) {
	if name == manifest.SignatureName && slices.Contains(d.Keep, manifest.FileName) {
		d.Keep = append(d.Keep, name)
		return
	}
	d.Remove = append(d.Remove, name)
}

// Sort sorts the names.
func (d *Diff) Sort() {
	for _, list := range [][]string{d.Add, d.Change, d.Remove, d.Keep} {
		slices.Sort(list)
	}
}

// Signs reports whether nothing happens but that a package which is there gets a signature.
func (d Diff) Signs() bool { return len(d.Change) == 0 && only(d.Add) }

// SignsAnew reports whether nothing happens but that a package which is there gets another signature than it has.
func (d Diff) SignsAnew() bool { return len(d.Add) == 0 && only(d.Change) }

func only(names []string) bool { return len(names) == 1 && names[0] == manifest.SignatureName }

// ErrSignedAlready refuses to replace a signature.
var ErrSignedAlready = errors.New("holds this package with another signature; set replace to replace it")
