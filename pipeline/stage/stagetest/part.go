package stagetest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// AddPart gives the package in dir a part called name: a copy of its text model, in files of its own.
func AddPart(ctx context.Context, dir, name string) error {
	m, err := manifest.Open(dir)
	if err != nil {
		return err
	}
	files := map[string]string{mnn.GraphFile(""): mnn.GraphFile(name), mnn.WeightFile(""): mnn.WeightFile(name)}
	for from, to := range files {
		b, err := os.ReadFile(filepath.Join(dir, from))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), b, 0o666)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range slices.Clone(m.Files) {
		if to, ok := files[f.Name]; ok {
			f.Name = to
			m.Files = append(m.Files, f)
		}
	}
	for _, t := range slices.Clone(m.Tensors) {
		if t.Part == "" {
			t.Part, t.File = name, files[t.File]
			m.Tensors = append(m.Tensors, t)
		}
	}
	return reseal(ctx, dir, m, name)
}

// reseal adds a part to config.json and writes the manifest.
func reseal(ctx context.Context, dir string, m *manifest.Manifest, part string) error {
	m.Sort()
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config map[string]any
	if err := json.Unmarshal(b, &config); err != nil {
		return err
	}
	own, _ := config["llmexport"].(map[string]any)
	parts, _ := own["parts"].([]any)
	own["parts"], own["content"] = append(parts, part), m.Content()
	if b, err = json.Marshal(config); err == nil {
		err = os.WriteFile(path, b, 0o666)
	}
	if err != nil {
		return err
	}
	for i, f := range m.Files {
		if f.Name == "config.json" {
			if m.Files[i], err = manifest.HashFile(ctx, path); err != nil {
				return err
			}
			m.Files[i].Role = f.Role
		}
	}
	if b, err = m.Marshal(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifest.FileName), b, 0o666)
}
