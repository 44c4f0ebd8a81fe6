package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/docs"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/arch"
)

func (t *tool) familiesCommand() *cli.Command {
	return &cli.Command{
		Name:      "families",
		Usage:     "list the supported model types, with the measured accuracy of each",
		ArgsUsage: "[MODEL_TYPE]",
		Description: "KL is the largest divergence, in nats, of the stock engine's logits from those of transformers, for 16-bit packages of\n" +
			"small checkpoints, over all tested engine releases and settings. With a MODEL_TYPE, as in config.json, the conditions of\n" +
			"such packages are listed too, with the numbers of the small checkpoint. Model types that are not listed are rejected;\n" +
			"llmexport plan then names the closest family and what it lacks.",
		Flags:              []cli.Flag{jsonFlag()},
		CustomHelpTemplate: help("llmexport families", "llmexport families gemma2", "llmexport families --json"),
		Action:             t.families,
	}
}

// knownFamily is an entry of docs/families.json.
type knownFamily struct {
	ModelType     string             `json:"model_type"`
	Architectures []string           `json:"architectures"`
	Texts         []string           `json:"texts,omitempty"`
	KL            map[string]float64 `json:"kl,omitempty"`
	Unmeasured    bool               `json:"unmeasured,omitempty"`
	Encoder       bool               `json:"encoder,omitempty"` // turns texts into vectors or scores
	Conditions    []string           `json:"conditions,omitempty"`
	Recipes       []struct {
		Name string `json:"name"`
		Repo string `json:"repo"`
	} `json:"recipes,omitempty"`
}

// knownFamilies lists the families of the program's table, with what docs/families.json says about them. Those that are not
// there yet are unmeasured.
func knownFamilies() ([]knownFamily, error) {
	var documented, list []knownFamily
	if err := json.Unmarshal(docs.Families, &documented); err != nil {
		return nil, fmt.Errorf("internal error: families: %w", err)
	}
	for _, k := range arch.Table() {
		f := knownFamily{ModelType: k.ModelType, Architectures: k.Architectures, Texts: k.Texts, Unmeasured: true}
		if i := slices.IndexFunc(documented, func(d knownFamily) bool { return d.ModelType == k.ModelType }); i >= 0 {
			f = documented[i]
		}
		list = append(list, f)
	}
	for _, k := range arch.Encoders() {
		list = append(list, knownFamily{ModelType: k.ModelType, Architectures: k.Architectures, Encoder: true})
	}
	return list, nil
}

func (t *tool) families(c *cli.Context) error {
	list, err := knownFamilies()
	if err != nil {
		return err
	}
	if c.Args().Len() > 1 {
		return exit.Usagef("families takes one MODEL_TYPE")
	}
	if name := c.Args().First(); name != "" {
		i := slices.IndexFunc(list, func(f knownFamily) bool { return f.ModelType == name })
		if i < 0 {
			return exit.Usagef("unknown model type %q; llmexport families lists them", name)
		}
		list = list[i : i+1]
	}
	if c.Bool("json") {
		return t.printJSON(list)
	}
	s := sheet.New("model_type", "KL", "recipes")
	for _, f := range list {
		s.Row(f.ModelType, f.measured(), f.recipes())
	}
	if err := s.Write(t.stdout, false); err != nil || len(list) > 1 {
		return err
	}
	f := list[0]
	fmt.Fprintf(t.stdout, "\narchitectures  %s\n", strings.Join(f.Architectures, ", "))
	for _, e := range slices.Sorted(maps.Keys(f.KL)) {
		fmt.Fprintf(t.stdout, "MNN %-10s KL %.2g\n", e, f.KL[e])
	}
	for _, text := range f.Conditions {
		fmt.Fprintf(t.stdout, "condition: %s\n", text)
	}
	return nil
}

// measured returns the largest divergence, or the reason why there is none.
func (f *knownFamily) measured() string {
	switch {
	case f.Encoder:
		return "vectors, see docs/embeddings.md"
	case len(f.Texts) > 0:
		return "text part only, see " + strings.Join(f.Texts, ", ")
	case f.Unmeasured:
		return "unmeasured"
	case len(f.KL) == 0:
		return "not measured"
	}
	return fmt.Sprintf("%.1g", slices.Max(slices.Collect(maps.Values(f.KL))))
}

func (f *knownFamily) recipes() string {
	var list []string
	for _, r := range f.Recipes {
		list = append(list, fmt.Sprintf("%s (%s)", r.Name, r.Repo))
	}
	return strings.Join(list, ", ")
}
