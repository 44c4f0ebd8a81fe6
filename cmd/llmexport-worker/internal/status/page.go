package status

import (
	_ "embed"
	"html/template"
	"io"
	"time"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
)

//go:embed page.html
var page string

// WritePage writes the status as a page of HTML that needs nothing else: no script, no font, no network.
func (s *Status) WritePage(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"headline": s.headline, "counts": s.counts, "failures": s.failures, "lasted": lasted, "part": s.part, "channels": channels,
		"title": func(t Task) string { return t.title() }, "percent": func(t Task) string { return t.fraction() },
		"left": func(t Task) string { return t.left() }, "note": func(t Task) string { return t.note() },
		"share":  func(p flow.Phase) float64 { return 100 * float64(s.Count(p)) / float64(max(1, s.total())) },
		"phases": func() []flow.Phase { return []flow.Phase{flow.Complete, flow.Running, flow.Failed, flow.Cancelled} },
		"time":   func(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" },
		"since":  func(a, b time.Time) string { return lasted(a.Sub(b)) },
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, s)
}

func (s *Status) total() (n int) {
	for _, r := range s.Repositories {
		n += len(r.Packages)
	}
	return n
}
