// Package report writes reports as pages: one self-contained HTML file without scripts, for light and dark mode, screens and
// phones. The same reports give the same bytes.
package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"strings"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/figure"
)

//go:embed page.html
var pageText string

//go:embed page.css
var styleSheet string

// Table is a table of texts; the first cell of a row is its name.
type Table struct {
	Caption string
	Head    []Column
	Rows    [][]string
}

// Column is the head of a column; numbers are aligned right.
type Column struct {
	Text  string
	Right bool
}

// Columns returns heads; those that begin with > are of numbers.
func Columns(names ...string) []Column {
	list := make([]Column, len(names))
	for i, n := range names {
		list[i].Text, list[i].Right = strings.CutPrefix(n, ">")
	}
	return list
}

// page is the input of the template.
type page struct {
	Title    string
	Lead     []string
	Tool     string
	Scatter  *figure.Figure
	Table    *Table
	Legend   []string
	Packages []packageView
}

// one is a package and whether the page has several.
type one struct {
	Many    bool
	Package packageView
}

func (p *page) html() ([]byte, error) {
	t, err := template.New("page").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(strings.TrimSpace(styleSheet) + figure.Style) },
		"dict":  func(many bool, p packageView) one { return one{many, p} },
	}).Parse(pageText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Package returns the page of one package.
func Package(r *about.Report) ([]byte, error) {
	return (&page{Title: r.Name, Tool: r.Tool, Packages: []packageView{newPackage(r, 0)}, Scatter: sizes([]*about.Report{r})}).html()
}

// Run returns the page of the packages of a run, which are variants of one recipe.
func Run(title string, list []*about.Report) ([]byte, error) {
	if len(list) == 1 {
		return Package(list[0])
	}
	p := &page{Title: title, Scatter: sizes(list), Table: overview(list)}
	for i, r := range list {
		p.Tool = r.Tool
		p.Packages = append(p.Packages, newPackage(r, i))
	}
	return p.html()
}

// Comparison is the input of a page that compares packages.
type Comparison struct {
	Title  string
	Lead   []string
	Tool   string
	Points []figure.Point
	Table  Table
	Legend []string
}

// Compare returns the page of a comparison.
func Compare(c Comparison) ([]byte, error) {
	p := &page{Title: c.Title, Lead: c.Lead, Tool: c.Tool, Table: &c.Table, Legend: c.Legend}
	p.Scatter = figure.Scatter("Quality over size", c.Points, figure.Narrow)
	return p.html()
}

// sizes draws packages and their source; nil if no package was compared with it.
func sizes(list []*about.Report) *figure.Figure {
	var points []figure.Point
	source := int64(0)
	for _, r := range list {
		if kl, stderr, ok := r.Closeness(); ok {
			points = append(points, figure.Point{Name: r.Name, Bytes: r.PackageBytes, KL: kl, StdErr: stderr})
		}
		source = max(source, r.SourceBytes)
	}
	if len(points) == 0 {
		return nil
	}
	figure.MarkFront(points)
	if source > 0 {
		points = append(points, figure.Point{Name: "the source", Bytes: source, Kind: figure.Source})
	}
	return figure.Scatter("Quality over size", points, figure.Narrow)
}

// overview is the table of several packages.
func overview(list []*about.Report) *Table {
	t := &Table{
		Caption: "The packages of this run",
		Head:    Columns("package", "verdict", ">on disk", ">memory", ">KL, nats", ">same next token", ">perplexity"),
	}
	for _, r := range list {
		cells := map[string]string{}
		for _, m := range r.Metrics {
			cells[m.Name] = m.Text()
		}
		verdict := "verified"
		if !r.Verified {
			verdict = "NOT VERIFIED"
		}
		t.Rows = append(t.Rows, []string{
			r.Name, verdict, about.Bytes(r.PackageBytes), about.Bytes(r.DeviceBytes),
			dash(cells["kl"]), dash(cells["same_top_token"]), dash(cells["perplexity"]),
		})
	}
	return t
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
