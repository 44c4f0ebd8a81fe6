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
	"github.com/llmexport/llmexport/runtime/mnn"
)

// CardName is the file name of a model card in a package and in a checkpoint, PageName that of the report in HTML, and
// PictureName that of the picture on the card.
const (
	CardName    = "README.md"
	PageName    = "report.html"
	PictureName = "quality.svg"
)

// CardInput is the input of a model card.
type CardInput struct {
	// Manifest needs no digest yet and may lack the card itself.
	Manifest *manifest.Manifest
	// SourceCard is the README.md of the checkpoint, nil if it has none.
	SourceCard []byte
	// Report has sizes and measurements.
	Report *Report
	// Picture is the file name of a picture of the measurements in the package, empty if there is none.
	Picture string
}

// Card returns the README.md of a package: the front matter of the source card with the fields that hubs need for a
// quantized model, and a body for those who consider a download: what it is, how good, how large, how to run it and how it was
// made. Tables are folded away. The same input gives the same bytes. Front matter that cannot be carried over is left out with
// a warning; it is not an error, because the user cannot fix the source's card.
func Card(in CardInput) (card []byte, warnings []string, err error) {
	if in.Manifest == nil || in.Report == nil {
		return nil, nil, errors.New("internal error: a card without a manifest or a report")
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

func cardBody(b *bytes.Buffer, in CardInput) error {
	m, r := in.Manifest, in.Report
	fmt.Fprintf(b, "# %s\n\n", prose(m.Name))
	if !m.Verified {
		fmt.Fprintf(b, "> **%s** Do not rely on it.\n\n", prose(r.Verdict()))
	}
	fmt.Fprintf(b, "%s, %s, for the LLM engine of [MNN](https://github.com/alibaba/MNN), "+
		"which runs language models on phones and computers.%s\n\n",
		sourceText(m.Source), storageText(r.Specs), taskText[m.Task])
	fmt.Fprintf(b, "- **Quality**: %s\n", prose(r.Quality()))
	fmt.Fprintf(b, "- **Size**: %s\n", prose(r.Sizes()))
	fmt.Fprintf(b, "- **Needs** MNN %s or newer; older engines may give wrong answers without an error.\n", prose(m.MinimumEngine))
	if in.Picture != "" {
		fmt.Fprintf(b, "\n![%s](%s)\n", prose("How close the package is to its source, and the bits of its weights"), in.Picture)
	}

	b.WriteString("\n## Run it\n\nDownload all files into one directory. There:\n\n")
	b.WriteString(taskUse[m.Task])
	cardPictures(b, m)
	cardSounds(b, m)
	cardThreads(b, m)
	if len(m.Conditions) > 0 {
		b.WriteString("\nKeep in mind:\n\n")
		for _, c := range m.Conditions {
			fmt.Fprintf(b, "- %s\n", prose(c))
		}
	}

	b.WriteString("\n## How it was made\n\n")
	cardOrigin(b, in)
	b.WriteString("\n## Details\n")
	cardMeasures(b, r)
	cardNotes(b, r)
	cardStorage(b, m)
	cardFiles(b, m)
	return cardRecipe(b, m)
}

// has reports whether a package has a part.
func has(m *manifest.Manifest, part string) bool {
	return slices.ContainsFunc(m.Tensors, func(t manifest.Tensor) bool { return t.Part == part })
}

// cardSounds shows a prompt with a clip.
func cardSounds(b *bytes.Buffer, m *manifest.Manifest) {
	if !has(m, mnn.AudioPart) {
		return
	}
	b.WriteString("\nA prompt can have clips: the name of a WAV file at 16 kHz between `<audio>` and `</audio>`.\n\n")
	clip := "<audio>clip.wav</audio>"
	const begin, end = "<|audio_bos|>", "<|audio_eos|>"
	if slices.ContainsFunc(m.Conditions, func(c string) bool { return strings.Contains(c, begin) }) { // the words that this model needs
		clip = begin + clip + end
	}
	b.WriteString(fenced("sh", "llmexport generate . 'What is said here? "+clip+"'"))
}

// cardPictures shows a prompt with a picture.
func cardPictures(b *bytes.Buffer, m *manifest.Manifest) {
	if !has(m, mnn.VisualPart) {
		return
	}
	b.WriteString("\nA prompt can have pictures: the name of a file between `<img>` and `</img>`.\n\n")
	b.WriteString(fenced("sh", "llmexport generate . 'What is in <img>photo.jpg</img>?'"))
	for _, c := range m.Checks {
		if kl, ok := c.Value["kl_resize"]; ok {
			fmt.Fprintf(b, "\nThe engine shrinks pictures without the filter that the model was trained with. On drawn pictures three times as large as the\n"+
				"tower reads, that moves the predictions of the model by a KL divergence of %.2g nats: shrink large pictures with a good filter first.\n", kl)
		}
	}
}

// taskText says what a package is for that does not continue texts, by [manifest.Manifest.Task].
var taskText = map[string]string{
	manifest.Embed:  " It turns a text into a vector.",
	manifest.Rerank: " It scores documents for a query.",
}

// taskUse shows how to run a package.
var taskUse = map[string]string{
	"": fenced("sh", "llm_demo config.json       # MNN's own program\n"+
		"llmexport chat .           # or that of llmexport, on a computer"),
	manifest.Embed: fenced("python", "import MNN.llm\n\n"+
		"model = MNN.llm.create(\"config.json\", 1)    # 1: an embedding model\n"+
		"model.load()\n"+
		"vector = model.txt_embedding(\"Hello\").read()") +
		"\nOr with llmexport, on a computer: `llmexport embed . Hello`.\n",
	manifest.Rerank: fenced("python", "import _mnncengine\n\n"+
		"model = _mnncengine.llm.create_reranker(\"gte\", \"config.json\")\n"+
		"model.load()\n"+
		"scores = model.compute_scores(\"a query\", [\"a document\", \"another\"])") +
		"\nOr with llmexport, on a computer: `llmexport rerank . --query 'a query' 'a document' another`.\n",
}

// storageText names the storage form of most weights.
func storageText(specs []SpecSummary) string {
	most, width := 0.0, 0
	for _, s := range specs {
		bits, ok := specBits(s.Spec)
		if n := float64(s.Bytes) / float64(max(bits, 1)); ok && n > most {
			most, width = n, bits
		}
	}
	if width == 0 {
		return "packaged"
	}
	return fmt.Sprintf("packaged with most weights in %d bits", width)
}

// cardOrigin says who made the package from what.
func cardOrigin(b *bytes.Buffer, in CardInput) {
	m, r := in.Manifest, in.Report
	source := strings.Replace(sourceText(m.Source), "A local", "a local", 1)
	fmt.Fprintf(b, "By %s %s from %s", prose(m.Tool.Name), prose(m.Tool.Version), source)
	if method := recipeMethod(m.Recipe); method != "" {
		fmt.Fprintf(b, " with the method %s", code(method))
	}
	if c := r.Calibration; c != nil {
		fmt.Fprintf(b, ", on %d tokens of calibration text", c.Tokens)
		for _, s := range c.Shown {
			fmt.Fprintf(b, " and %d %s", s.Used, s.Kind)
		}
	}
	fmt.Fprintf(b, ". %s", prose(r.Verdict()))
	if d := r.Divergence; d != nil {
		fmt.Fprintf(b, " Measured on %s: %d windows of %d tokens.", prose(d.Text), d.Windows, d.Window)
	}
	fmt.Fprintf(b, "\n\n[report.html](%s) has all measurements with figures. `llmexport verify DIR` checks every file against "+
		"`manifest.json` and runs the model, and `llmexport reproduce DIR` makes the same bytes again from the source.\n", PageName)
}

// recipeMethod returns the method of quantization in a recipe, empty if it is not known.
func recipeMethod(recipe json.RawMessage) string {
	var r struct {
		Quantize struct {
			Method json.RawMessage `json:"method"`
		} `json:"quantize"`
	}
	if json.Unmarshal(recipe, &r) != nil {
		return ""
	}
	var names []string
	if json.Unmarshal(r.Quantize.Method, &names) == nil {
		return strings.Join(names, " + ")
	}
	var name string
	if json.Unmarshal(r.Quantize.Method, &name) != nil {
		return ""
	}
	return name
}

// folded writes a part of the card that readers unfold.
func folded(b *bytes.Buffer, title string, write func()) {
	fmt.Fprintf(b, "\n<details>\n<summary>%s</summary>\n\n", title)
	write()
	b.WriteString("\n</details>\n")
}

func cardMeasures(b *bytes.Buffer, r *Report) {
	if len(r.Metrics)+len(r.Checks) == 0 {
		return
	}
	folded(b, "Measurements and checks", func() {
		row(b, "measurement", "value", "standard error")
		row(b, "---", "---:", "---:")
		for _, x := range r.Metrics {
			row(b, cell(x.Meaning()), cell(x.Text()), x.ErrorText())
		}
		b.WriteByte('\n')
		row(b, "check", "value", "limit", "result")
		row(b, "---", "---:", "---:", "---")
		for _, x := range r.Checks {
			row(b, cell(x.Name), cell(x.Text()), cell(x.Limit), cell(string(x.Outcome)))
		}
	})
}

// cardNotes describes how the engine's tokens and prompts differ from the source's, and what else nobody can change.
func cardNotes(b *bytes.Buffer, r *Report) {
	var notes []string
	for _, x := range r.Checks {
		if (x.Name == "tokenizer" || x.Name == "template") && x.Detail != "" {
			notes = append(notes, x.Name+": "+x.Detail)
		}
	}
	notes = append(notes, r.Notes...)
	if len(notes) == 0 {
		return
	}
	folded(b, "Tokens and prompts in the engine", func() {
		for _, n := range notes {
			fmt.Fprintf(b, "- %s\n", prose(n))
		}
	})
}

func cardStorage(b *bytes.Buffer, m *manifest.Manifest) {
	specs := Specs(m.Tensors)
	if len(specs) == 0 {
		return
	}
	folded(b, "Storage of weights", func() {
		row(b, "form", "tensors", "bytes")
		row(b, "---", "---:", "---:")
		for _, s := range specs {
			row(b, codeCell(s.Spec), strconv.Itoa(s.Tensors), strconv.FormatInt(s.Bytes, 10))
		}
	})
}

func cardFiles(b *bytes.Buffer, m *manifest.Manifest) {
	folded(b, "Files", func() {
		row(b, "file", "bytes", "SHA-256")
		row(b, "---", "---:", "---")
		for _, f := range m.Files {
			if f.Name != CardName { // it cannot contain its own digest
				row(b, codeCell(f.Name), strconv.FormatInt(f.Size, 10), code(f.SHA256))
			}
		}
	})
}

func cardRecipe(b *bytes.Buffer, m *manifest.Manifest) error {
	if len(m.Recipe) == 0 {
		return nil
	}
	var recipe bytes.Buffer
	if err := json.Indent(&recipe, bytes.TrimSpace(m.Recipe), "", "  "); err != nil {
		return fmt.Errorf("recipe: %w", err)
	}
	folded(b, "Recipe", func() { b.WriteString(fenced("json", recipe.String())) })
	return nil
}

// cardThreads names the thread counts that are right on all CPUs, and folds those of each kind away.
func cardThreads(b *bytes.Buffer, m *manifest.Manifest) {
	var safe []int
	unsafe := false
	for i, t := range m.Threads {
		if i == 0 {
			safe = slices.Clone(t.Safe)
		}
		safe = slices.DeleteFunc(safe, func(n int) bool { return !slices.Contains(t.Safe, n) })
		unsafe = unsafe || len(t.Unsafe) > 0
	}
	if !unsafe {
		return
	}
	if len(safe) > 0 {
		fmt.Fprintf(b, "\n`thread_num` in `config.json` may be %s on every CPU. The engine computes wrong results with some other numbers.\n",
			counts(safe))
	} else {
		b.WriteString("\nWith some numbers in `thread_num` of `config.json` the engine computes wrong results.\n")
	}
	folded(b, "Threads by CPU", func() {
		row(b, "CPU", "right", "wrong")
		row(b, "---", "---", "---")
		for _, t := range m.Threads {
			row(b, packs(t.Pack), counts(t.Safe), counts(t.Unsafe))
		}
	})
}

// packs names the CPUs that pack a number of channels.
func packs(n int) string {
	kinds := map[int]string{4: "ARM in float32", 8: "ARM in fp16, x86 with AVX2", 16: "x86 with AVX-512"}
	if kind, ok := kinds[n]; ok {
		return fmt.Sprintf("%s (%d channels)", kind, n)
	}
	return fmt.Sprintf("%d channels", n)
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
