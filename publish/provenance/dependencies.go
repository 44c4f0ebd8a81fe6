package provenance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	reportName = "report.json"
	reportRole = "report"
	maxReport  = 16 << 20
)

var commit = regexp.MustCompile(`^[0-9a-f]{40}$`)

// text is data that the build read in addition to the checkpoint.
type text struct {
	name, sha256 string
}

// calibration returns the calibration texts from the report.
func calibration(ctx context.Context, m *manifest.Manifest, dir string) ([]text, error) {
	data, err := m.ReadFile(ctx, dir, reportName, maxReport)
	if err != nil || data == nil {
		return nil, err
	}
	return parseReport(data)
}

func parseReport(data []byte) ([]text, error) {
	var report struct {
		Calibration struct {
			Domains []struct {
				Name   string `json:"name"`
				SHA256 string `json:"sha256"`
			} `json:"domains"`
		} `json:"calibration"`
	}
	if err := jsondoc.Decode(data, &report); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", reportName, err, tensor.ErrCorrupt)
	}
	var texts []text
	for _, d := range report.Calibration.Domains {
		if !digest.IsHex(d.SHA256) {
			return nil, fmt.Errorf("%s: calibration text %.80q has digest %.80q: %w", reportName, d.Name, d.SHA256, tensor.ErrCorrupt)
		}
		texts = append(texts, text{d.Name, d.SHA256})
	}
	return texts, nil
}

// dependencies lists the repository at its commit, the files of the checkpoint, the calibration texts, and everything
// else that the recipe pins by digest.
func dependencies(m *manifest.Manifest, texts []text) []Descriptor {
	var list []Descriptor
	uri := SourceURI(m.Source)
	if uri != "" {
		d := Descriptor{Name: m.Source.Name(), URI: uri}
		if commit.MatchString(m.Source.Revision) {
			d.Digest = map[string]string{"gitCommit": m.Source.Revision}
		}
		list = append(list, d)
	}
	for _, f := range m.Source.Files {
		d := Descriptor{Name: f.Name, Digest: sha256(f.SHA256)}
		if uri != "" {
			d.URI = uri + "#" + escape(f.Name)
		}
		list = append(list, d)
	}
	texts = append(texts, pinned(m.Recipe)...)
	slices.SortFunc(texts, func(a, b text) int {
		return cmp.Or(strings.Compare(a.sha256, b.sha256), strings.Compare(a.name, b.name))
	})
	texts = slices.CompactFunc(texts, func(a, b text) bool { return a.sha256 == b.sha256 })
	slices.SortFunc(texts, func(a, b text) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.sha256, b.sha256))
	})
	for _, x := range texts {
		list = append(list, Descriptor{Name: x.name, Digest: sha256(x.sha256)})
	}
	return list
}

// SourceURI returns the package URL of the source at its revision, or "" for a local checkpoint. ModelScope has no type
// of package URLs: its repositories are named as git repositories in SPDX 2.3, section 7.7. Source:
// https://github.com/package-url/purl-spec, type huggingface.
func SourceURI(s manifest.Source) string {
	switch {
	case s.Repo == "":
		return ""
	case s.Hub == manifest.ModelScope:
		return "git+https://www.modelscope.cn/" + escape(s.Repo) + ".git" + at(s.Revision)
	}
	return "pkg:huggingface/" + escape(s.Repo) + at(s.Revision)
}

func at(revision string) string {
	if revision == "" {
		return ""
	}
	return "@" + url.PathEscape(revision)
}

// escape encodes a path in a package URL.
func escape(p string) string {
	parts := strings.Split(p, "/")
	for i, x := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(x), "@", "%40")
	}
	return strings.Join(parts, "/")
}

// pinned finds every {path, sha256} of a recipe, in all stages.
func pinned(recipe json.RawMessage) []text {
	var tree any
	if len(recipe) == 0 || json.Unmarshal(recipe, &tree) != nil {
		return nil
	}
	var list []text
	var look func(any)
	look = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				look(e)
			}
		case map[string]any:
			file, _ := v["path"].(string)
			sum, _ := v["sha256"].(string)
			if digest.IsHex(sum) && file != "" {
				list = append(list, text{path.Base(strings.ReplaceAll(file, `\`, "/")), sum})
			}
			for _, e := range v {
				look(e)
			}
		}
	}
	look(tree)
	return list
}
