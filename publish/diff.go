package publish

import (
	"slices"

	"github.com/llmexport/llmexport/publish/manifest"
)

// diffManifests compares what a place holds, nil for nothing, with a package. Upload counts the new and changed files, but
// not manifest.json.
func diffManifests(old, p *manifest.Manifest) Diff {
	d := Diff{Status: Unchanged}
	had := map[string]manifest.File{}
	switch {
	case old == nil:
		d.Status = Published
		d.Add = append(d.Add, manifest.FileName)
	case old == p:
		d.Keep = append(d.Keep, manifest.FileName)
	default:
		d.Status = Replaced
		d.Change = append(d.Change, manifest.FileName)
	}
	if old != nil {
		for _, f := range old.Files {
			had[f.Name] = f
		}
	}
	for _, f := range p.Files {
		was, ok := had[f.Name]
		delete(had, f.Name)
		switch {
		case !ok:
			d.Add = append(d.Add, f.Name)
		case was.SHA256 == f.SHA256 && was.Size == f.Size:
			d.Keep = append(d.Keep, f.Name)
			continue
		default:
			d.Change = append(d.Change, f.Name)
		}
		d.Upload += f.Size
	}
	for name := range had {
		d.Remove = append(d.Remove, name)
	}
	for _, list := range [][]string{d.Add, d.Change, d.Remove, d.Keep} {
		slices.Sort(list)
	}
	return d
}
