package place

import (
	"errors"
	"slices"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Compare compares the contents of a place, the SHA-256 of every file by its name, with those of a package. Upload
// counts the new and changed files; the caller sets the status. The signature of an unchanged manifest is kept.
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

// Drop records a file of the place that the package does not have. It is called after the others are recorded.
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

// Signs reports whether the only change is to add a signature to an existing package.
func (d Diff) Signs() bool { return len(d.Change) == 0 && only(d.Add) }

// SignsAnew reports whether the only change is to replace the signature of an existing package.
func (d Diff) SignsAnew() bool { return len(d.Add) == 0 && only(d.Change) }

func only(names []string) bool { return len(names) == 1 && names[0] == manifest.SignatureName }

// ErrSignedAlready is the error for replacing a signature.
var ErrSignedAlready = errors.New("contains this package with another signature; set replace to replace it")
