// Package about describes packages: it makes the model card, the report and the bill of materials, and finds licence
// files and licence terms in a checkpoint. It knows no places.
package about

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/publish/manifest"
)

// CardName is the file name of a model card in a package and in a checkpoint.
const CardName = "README.md"

// CardInput is the input of a model card.
type CardInput struct {
	// Manifest needs no digest yet and may lack the card itself.
	Manifest *manifest.Manifest
	// SourceCard is the README.md of the checkpoint, nil if it has none.
	SourceCard []byte
	// Metrics are the rows of the table of measurements.
	Metrics []Measure
}

// Card returns the README.md of a package: the front matter of the source card with the fields that hubs need for a
// quantized model, and a body that describes the package, its measurements and how to run it. The same input gives the
// same bytes. Front matter that cannot be carried over is left out with a warning; it is not an error, because the user
// cannot fix the source's card.
func Card(in CardInput) (card []byte, warnings []string, err error) {
	if in.Manifest == nil {
		return nil, nil, errors.New("internal error: a card without a manifest")
	}
	head, warnings := cardHead(in)
	var b bytes.Buffer
	b.WriteString("---\n" + head.String() + "---\n\n")
	if err := cardBody(&b, in); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), warnings, nil
}

func cardHead(in CardInput) (frontMatter, []string) {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }

	var fm frontMatter
	if in.SourceCard == nil {
		warn("the source has no %s, so the card of the package states no licence", CardName)
	} else {
		parsed, err := parseFrontMatter(in.SourceCard)
		if err == nil {
			if _, ok := parsed.find("model-index"); ok {
				warn("model-index of the source's %s is left out, because those results were measured on the source", CardName)
			}
			parsed = parsed.without("model-index", "base_model", "base_model_relation", "library_name")
			err = parsed.check()
		}
		switch {
		case err != nil:
			warn("front matter of the source's %s is left out, including the licence: %v", CardName, err)
		default:
			fm = parsed
			if _, ok := fm.find("license"); !ok {
				warn("the source's %s states no licence", CardName)
			}
		}
	}
	tags, ok := fm.list("tags")
	if !ok {
		warn("tags of the source's %s that are not strings are left out", CardName)
	}
	for _, t := range []string{"mnn", "llmexport"} {
		if !slices.Contains(tags, t) {
			tags = append(tags, t)
		}
	}
	fm = fm.set("tags", yamlList("tags", tags))
	// The name is interpreted as a repository of Hugging Face, where one of ModelScope may not exist.
	if repo := in.Manifest.Source.Repo; repo != "" && in.Manifest.Source.Hub == "" {
		fm = fm.set("base_model", "base_model: "+yamlString(repo)+"\n")
		fm = fm.set("base_model_relation", "base_model_relation: quantized\n")
	}
	return fm.set("library_name", "library_name: mnn\n"), warnings
}

// cardPrompts describes how the engine's tokens and prompts differ from the source's.
func cardPrompts(b *bytes.Buffer, measures []Measure) {
	title := "\n## Tokens and prompts\n\n"
	for _, x := range measures {
		if (x.Name == "tokenizer" || x.Name == "template") && x.Detail != "" {
			fmt.Fprintf(b, "%s* %s: %s\n", title, prose(x.Name), prose(x.Detail))
			title = ""
		}
	}
}

func cardBody(b *bytes.Buffer, in CardInput) error {
	m := in.Manifest
	fmt.Fprintf(b, "# %s\n\n", prose(m.Name))
	if !m.Verified {
		b.WriteString("> **NOT VERIFIED.** No check has shown that this package behaves like its source. Do not rely on it.\n\n")
	}
	fmt.Fprintf(b, "%s as a package for the LLM engine of [MNN](https://github.com/alibaba/MNN), written by %s %s.\n\n",
		sourceText(m.Source), prose(m.Tool.Name), prose(m.Tool.Version))
	fmt.Fprintf(b, "Needs MNN %s or newer; an older engine may give wrong answers without an error.\n", prose(m.MinimumEngine))
	if len(m.Target.Backends) > 0 {
		fmt.Fprintf(b, "Made for engine %s on %s.\n", prose(m.Target.Engine), prose(strings.Join(m.Target.Backends, ", ")))
	}

	if len(in.Metrics) > 0 {
		b.WriteString("\n## Measured\n\n")
		row(b, "measure", "value", "standard error", "limit", "result")
		row(b, "---", "---:", "---:", "---:", "---")
		for _, x := range in.Metrics {
			row(b, cell(x.Name), cell(x.valueText()), number(x.StdErr), cell(x.Limit), cell(string(x.Outcome)))
		}
	}
	cardPrompts(b, in.Metrics)
	if specs := Specs(m.Tensors); len(specs) > 0 {
		b.WriteString("\n## Weights\n\n")
		row(b, "storage", "tensors", "bytes")
		row(b, "---", "---:", "---:")
		for _, s := range specs {
			row(b, codeCell(s.Spec), strconv.Itoa(s.Tensors), strconv.FormatInt(s.Bytes, 10))
		}
	}

	b.WriteString("\n## Run\n\n")
	b.WriteString(fenced("sh", "llm_demo config.json       # MNN's own program, in this directory\nllmexport verify DIR       # compare "+
		"every file with manifest.json and check the model"))
	cardThreads(b, m)

	b.WriteString("\n## Files\n\n")
	row(b, "file", "bytes", "SHA-256")
	row(b, "---", "---:", "---")
	for _, f := range m.Files {
		if f.Name != CardName { // it cannot contain its own digest
			row(b, codeCell(f.Name), strconv.FormatInt(f.Size, 10), code(f.SHA256))
		}
	}
	if len(m.Recipe) > 0 {
		var recipe bytes.Buffer
		if err := json.Indent(&recipe, bytes.TrimSpace(m.Recipe), "", "  "); err != nil {
			return fmt.Errorf("recipe: %w", err)
		}
		b.WriteString("\n## Recipe\n\n")
		b.WriteString(fenced("json", recipe.String()))
	}
	return nil
}

func cardThreads(b *bytes.Buffer, m *manifest.Manifest) {
	for i, t := range m.Threads {
		if i == 0 {
			b.WriteString("\nWith some thread counts the engine computes wrong results (`thread_num` in `config.json`):\n\n")
		}
		fmt.Fprintf(b, "- CPUs that pack %d channels: ", t.Pack)
		switch {
		case len(t.Unsafe) == 0:
			fmt.Fprintf(b, "safe with %s", counts(t.Safe))
		case len(t.Safe) == 0:
			fmt.Fprintf(b, "unsafe with %s", counts(t.Unsafe))
		default:
			fmt.Fprintf(b, "safe with %s, unsafe with %s", counts(t.Safe), counts(t.Unsafe))
		}
		b.WriteString(".\n")
	}
	for i, c := range m.Conditions {
		if i == 0 {
			b.WriteString("\nConditions:\n\n")
		}
		fmt.Fprintf(b, "- %s\n", prose(c))
	}
}

func sourceText(s manifest.Source) string {
	name := code(s.Name())
	if s.Hub != "" { // base_model links to repositories of Hugging Face
		name = "[" + name + "](" + s.Page() + ")"
	}
	switch {
	case s.Repo == "":
		return "A local checkpoint"
	case s.Revision == "":
		return name
	}
	return name + " at revision " + code(s.Revision)
}

func counts(list []int) string {
	text := make([]string, len(list))
	for i, n := range list {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ", ")
}

func row(b *bytes.Buffer, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

var markdown = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", " ", "\n", " ", "[", `\[`, "]", `\]`)

// prose puts foreign text on one line without HTML and links.
func prose(s string) string { return markdown.Replace(s) }

func cell(s string) string { return strings.ReplaceAll(prose(s), "|", `\|`) }

// code returns a code span, with a longer run of backticks around it than inside.
func code(s string) string {
	s = strings.NewReplacer("\r", " ", "\n", " ").Replace(s)
	if !strings.Contains(s, "`") {
		return "`" + s + "`"
	}
	fence := strings.Repeat("`", backticks(s)+1)
	return fence + " " + s + " " + fence
}

// codeCell returns a code span for a table, where bars are escaped even in code.
func codeCell(s string) string { return strings.ReplaceAll(code(s), "|", `\|`) }

func fenced(language, text string) string {
	fence := strings.Repeat("`", max(3, backticks(text)+1))
	return fence + language + "\n" + text + "\n" + fence + "\n"
}

// backticks is the length of the longest run of them.
func backticks(s string) int {
	run, most := 0, 0
	for _, c := range []byte(s) {
		if c != '`' {
			run = 0
			continue
		}
		run++
		most = max(most, run)
	}
	return most
}
