package about

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/provenance"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxBOMFile bounds each file that a bill of materials reads, in bytes.
const maxBOMFile = 16 << 20

// confidence is the half width of a 95 % interval in standard errors.
const confidence = 1.96

// homepage is the home page of the program.
const homepage = "https://github.com/llmexport/llmexport"

// BOM returns the bill of materials of the package in dir: CycloneDX 1.6 in canonical JSON, with the model as its main
// component, its files with SHA-256, the checkpoint as its ancestor, and a model card with storage formats and
// measurements. It contains neither time nor machine, and its serial number is derived from the manifest, so a package
// always has the same one. It reads manifest.json and, if listed, the report, the card, which has the licence, and the
// facts of the model; those must have their listed digests.
func BOM(ctx context.Context, dir string) ([]byte, error) {
	m, err := manifest.Open(dir)
	if err != nil {
		return nil, err
	}
	data, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	var facts struct {
		ModelType string `json:"model_type"`
	}
	var report Report
	for name, into := range map[string]any{"llm_config.json": &facts, ReportName: &report} {
		b, err := m.ReadFile(ctx, dir, name, maxBOMFile)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		if err := jsondoc.Decode(b, into); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", name, err, tensor.ErrCorrupt)
		}
	}
	card, err := m.ReadFile(ctx, dir, CardName, maxBOMFile)
	if err != nil {
		return nil, err
	}

	whole := digest.Of(data)
	c := bomComponent{
		Type: "machine-learning-model", Ref: "package", Name: m.Name, Version: string(m.Digest),
		Description: "Package for the LLM engine of MNN " + m.MinimumEngine + " or newer",
		Licenses:    bomLicenses(card),
		Pedigree:    bomSource(m.Source),
		References:  bomReferences(m),
		Components:  []bomComponent{bomFile("package", manifest.File{Name: manifest.FileName, SHA256: whole.Hex()})},
		ModelCard:   bomCard(m, report.Calibration, facts.ModelType),
		Properties:  bomProperties(m),
	}
	for _, f := range m.Files {
		c.Components = append(c.Components, bomFile("package", f))
	}
	return manifest.Canonical(bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", BOMFormat: "CycloneDX", SpecVersion: "1.6", Version: 1,
		SerialNumber: serial(whole),
		Metadata: bomMetadata{
			Tools: bomTools{[]bomComponent{{
				Type: "application", Name: m.Tool.Name, Version: m.Tool.Version,
				References: []bomReference{{Type: "website", URL: homepage}},
			}}},
			Component: c,
		},
	})
}

// serial derives a UUID from a digest: version 8 of RFC 9562, with 122 free bits.
func serial(d digest.Digest) string {
	h := []byte(d.Hex()[:32])
	h[12] = '8'
	h[16] = "89ab"[h[16]&3] // the two bits of the variant
	return fmt.Sprintf("urn:uuid:%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:32])
}

func bomFile(owner string, f manifest.File) bomComponent {
	c := bomComponent{Type: "file", Ref: owner + ":" + f.Name, Name: f.Name, Hashes: bomHashes(f)}
	if f.Role != "" {
		c.Properties = []bomProperty{{"llmexport:role", f.Role}}
	}
	return c
}

func bomHashes(f manifest.File) []bomHash { return []bomHash{{"SHA-256", f.SHA256}} }

// bomSource describes the checkpoint and its files.
func bomSource(s manifest.Source) *bomPedigree {
	a := bomComponent{Type: "machine-learning-model", Ref: "source", Name: s.Name(), Version: s.Revision}
	if uri := provenance.SourceURI(s); strings.HasPrefix(uri, "pkg:") {
		a.PackageURL = uri
	} else if s.Repo != "" {
		a.References = []bomReference{{Type: "website", URL: s.Page()}}
	}
	if a.Name == "" {
		a.Name = "local checkpoint"
	}
	for _, f := range s.Files {
		a.Components = append(a.Components, bomFile("source", f))
	}
	return &bomPedigree{Ancestors: []bomComponent{a}, Notes: "Converted and quantized from the ancestor; the provenance describes how."}
}

// bomReferences returns references to files of the package that explain it.
func bomReferences(m *manifest.Manifest) []bomReference {
	list := []bomReference{{Type: "build-system", URL: homepage}}
	kinds := map[string]string{"card": "model-card", "report": "quality-metrics", "recipe": "configuration", "license": "license"}
	for _, f := range m.Files {
		if kind, ok := kinds[f.Role]; ok {
			list = append(list, bomReference{Type: kind, URL: (&url.URL{Path: f.Name}).String(), Hashes: bomHashes(f)})
		}
	}
	return list
}

func bomProperties(m *manifest.Manifest) []bomProperty {
	list := []bomProperty{
		{"llmexport:content", string(m.Content())},
		{"llmexport:engine:minimum", m.MinimumEngine},
		{"llmexport:engine:target", m.Target.Engine},
	}
	for _, b := range m.Target.Backends {
		list = append(list, bomProperty{"llmexport:backend", b})
	}
	list = append(list, bomProperty{"llmexport:verified", strconv.FormatBool(m.Verified)})
	for _, c := range m.Checks {
		verdict := "failed"
		switch {
		case c.Passed:
			verdict = "passed"
		case c.Skipped:
			verdict = "skipped"
		}
		list = append(list, bomProperty{"llmexport:check:" + c.Name, verdict})
	}
	return list
}

func bomCard(m *manifest.Manifest, c *Calibration, modelType string) *bomModelCard {
	card := &bomModelCard{Parameters: bomParameters{
		Task: "text-generation", Architecture: modelType,
		Inputs: []bomFormat{{"text"}}, Outputs: []bomFormat{{"text"}},
	}}
	if c != nil {
		for _, d := range c.Domains {
			card.Parameters.Datasets = append(card.Parameters.Datasets, bomData{
				Type: "dataset", Name: d.Name, Description: fmt.Sprintf("Calibration of the quantizer on %d tokens; nothing was trained.", d.Tokens),
				Contents: bomContents{[]bomProperty{{"llmexport:sha256", d.SHA256}}},
			})
		}
		for _, s := range c.Shown {
			card.Parameters.Datasets = append(card.Parameters.Datasets, bomData{
				Type: "dataset", Name: s.Name, Description: fmt.Sprintf("Calibration of the quantizer on %d %s; nothing was trained.", s.Used, s.Kind),
				Contents: bomContents{[]bomProperty{{"llmexport:sha256", s.SHA256}}},
			})
		}
	}
	for _, s := range Specs(m.Tensors) {
		card.Properties = append(card.Properties, bomProperty{"llmexport:storage:" + s.Spec, fmt.Sprintf("%d tensors, %d bytes", s.Tensors, s.Bytes)})
	}
	if len(m.Metrics) > 0 {
		card.Analysis = &bomAnalysis{}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Metrics)) {
		v := m.Metrics[name]
		row := bomMetric{Type: name, Value: decimal(v.Value)}
		if v.StdErr > 0 {
			margin := float64(confidence * v.StdErr)
			row.Interval = &bomInterval{decimal(v.Value - margin), decimal(v.Value + margin)}
		}
		card.Analysis.Metrics = append(card.Analysis.Metrics, row)
	}
	limits := slices.Clone(m.Conditions)
	if !m.Verified {
		limits = append([]string{"Not verified: no check has shown that the package behaves like its source."}, limits...)
	}
	if len(limits) > 0 {
		card.Considerations = &bomConsiderations{limits}
	}
	return card
}

// decimal returns the shortest representation of a float64.
func decimal(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
