package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/figure"
	pages "github.com/llmexport/llmexport/publish/report"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/verify"
)

func (t *tool) compareCommand() *cli.Command {
	d := stage.Defaults().Verify.Perplexity
	return &cli.Command{
		Name:      "compare",
		Usage:     "measure packages of one checkpoint side by side",
		ArgsUsage: "PACKAGE...",
		Description: "Evaluates packages, including those of other tools, against their source on the same windows: their size and their\n" +
			"divergence. Sizes count the files that the engine opens. A star marks the best at their size: no other package is\n" +
			"as close to the source and smaller, or as small and closer. Sizes within 0.5 % count as equal, and so do\n" +
			"divergences within two standard errors of their difference.\n" +
			"--score-from 256 with windows of 512 scores the same tokens as llama-perplexity.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "source", Usage: "`CHECKPOINT` directory that the packages were made from"},
			&cli.StringFlag{Name: "text", Usage: "evaluate on the text in `FILE` instead of the built-in one"},
			&cli.IntFlag{Name: "window", Value: d.Window, Usage: "`N` tokens per window"},
			&cli.IntFlag{Name: "windows", Value: d.Windows, Usage: "`N` windows spread over the text, 0 for all"},
			&cli.IntFlag{Name: "score-from", Usage: "score only positions from `N` on in each window"},
			htmlFlag("write the comparison as a page to `FILE`"),
			&cli.StringFlag{Name: "svg", Usage: "write a plot of quality over size to `FILE`"},
			&cli.StringSliceFlag{Name: "point", Usage: "also show `NAME,BYTES,KL`, measured elsewhere, in the plot"},
			&cli.StringFlag{Name: "memory", Value: recipes.DefaultLimits().Memory.String(), Usage: "`SIZE` of memory for this run"},
			&cli.IntFlag{Name: "threads", Usage: "`N` threads, 0 for all cores"},
			jsonFlag(),
		},
		CustomHelpTemplate: help(
			"llmexport compare dist/* --source ./Qwen3-0.6B",
			"llmexport compare dist/* ./other-mnn --source ./Qwen3-0.6B --text wiki.txt --windows 64 --score-from 256 \\\n"+
				"      --svg quality.svg --point Q4_K_M,396705472,0.0213",
		),
		Action: t.compare,
	}
}

// comparison is the result in JSON.
type comparison struct {
	Source string         `json:"source"`
	Text   comparisonText `json:"text"`
	// Perplexity is that of the source.
	Perplexity float64      `json:"source_perplexity"`
	Packages   []comparedTo `json:"packages"`
	// Points are those given on the command line.
	Points []figure.Point `json:"points"`
}

// comparisonText describes the text that was measured on.
type comparisonText struct {
	Name      string `json:"name"`
	SHA256    string `json:"sha256"`
	Window    int    `json:"window"`
	Windows   int    `json:"windows"`
	ScoreFrom int    `json:"score_from"`
	// Scored is the number of positions.
	Scored int `json:"scored_tokens"`
}

// comparedTo compares a package with its source. Numbers are null if logits of the package are not finite.
type comparedTo struct {
	Name          string        `json:"name"`
	Dir           string        `json:"dir"`
	Digest        digest.Digest `json:"digest,omitempty"`
	Bytes         int64         `json:"bytes"`
	BitsPerWeight float64       `json:"bits_per_weight"`
	// DeviceBytes is an estimate for the same number of positions as in plan.
	DeviceBytes   int64  `json:"device_bytes"`
	MinimumEngine string `json:"minimum_engine"`
	// KL is that of the package as shipped, KLFloat that of its weights alone.
	KL         *float64 `json:"kl"`
	KLStdErr   *float64 `json:"kl_std_err"`
	KLFloat    *float64 `json:"kl_float"`
	Perplexity *float64 `json:"perplexity"`
	Ratio      *float64 `json:"perplexity_ratio"`
	Top1       *float64 `json:"same_top_token"`
	// NotFinite counts positions whose logits contain a NaN or an infinity.
	NotFinite int `json:"not_finite"`
	// Front reports whether the package is the best at its size, see [figure.Better].
	Front bool `json:"front"`
}

func (t *tool) compare(c *cli.Context) error {
	dirs := c.Args().Slice()
	if len(dirs) == 0 || c.String("source") == "" {
		return hint(exit.Usagef("compare needs PACKAGE... and --source CHECKPOINT"), c.Command.HelpName+" --help shows examples")
	}
	points, err := parsePoints(c.StringSlice("point"))
	if err != nil {
		return err
	}
	if len(points) > 0 && c.String("svg") == "" && c.String("html") == "" {
		return exit.Usagef("--point needs --svg or --html")
	}
	if err := checkPage(c); err != nil {
		return err
	}
	for _, dir := range dirs {
		if st, err := os.Stat(dir); err != nil {
			return err
		} else if !st.IsDir() {
			return exit.Usagef("%s is not a directory", dir)
		}
	}
	o, err := t.verifyOptions(c, nil)
	if err != nil {
		return err
	}
	o.DecodeTokens, o.ScoreFrom = 0, c.Int("score-from")
	if o.ScoreFrom < 0 || o.ScoreFrom > o.Window-2 {
		return exit.Usagef("--score-from %d leaves no tokens to score in a window of %d", o.ScoreFrom, o.Window)
	}
	list, err := stage.ComparePackages(c.Context, dirs, c.String("source"), o)
	t.progress.stop()
	if err != nil {
		return err
	}
	r := newComparison(list, o)
	r.Source, r.Points = c.String("source"), append(r.Points, points...)
	if err := r.findEngines(list); err != nil {
		return err
	}
	if c.Bool("json") {
		err = t.printJSON(r)
	} else {
		err = r.write(t.stdout)
	}
	if file := c.String("html"); err == nil && file != "" {
		var data []byte
		if data, err = r.page(); err == nil {
			err = os.WriteFile(file, data, 0o666)
		}
	}
	if file := c.String("svg"); err == nil && file != "" {
		err = os.WriteFile(file, figure.Scatter("Quality over size", r.plotPoints(), figure.Wide).File(), 0o666)
	}
	return err
}

// parsePoints parses NAME,BYTES,KL; a name may contain commas.
func parsePoints(texts []string) ([]figure.Point, error) {
	var points []figure.Point
	for _, text := range texts {
		f := strings.Split(text, ",")
		bad := exit.Usagef("--point %q is not NAME,BYTES,KL", text)
		if len(f) < 3 {
			return nil, bad
		}
		p := figure.Point{Name: strings.TrimSpace(strings.Join(f[:len(f)-2], ",")), Kind: figure.Given}
		var errs [2]error
		p.Bytes, errs[0] = strconv.ParseInt(strings.TrimSpace(f[len(f)-2]), 10, 64)
		p.KL, errs[1] = strconv.ParseFloat(strings.TrimSpace(f[len(f)-1]), 64)
		if errors.Join(errs[:]...) != nil || p.Name == "" || p.Bytes <= 0 || !(p.KL >= 0 && p.KL <= 1e6) {
			return nil, bad
		}
		points = append(points, p)
	}
	return points, nil
}

// newComparison sorts packages by size and marks the front.
func newComparison(list []stage.Compared, o verify.Options) *comparison {
	first := list[0].Evaluation
	r := &comparison{
		Text:       comparisonText{o.TextName, o.TextSHA256, first.Window, first.Windows, o.ScoreFrom, first.Source.Len()},
		Perplexity: first.Metrics()["perplexity_source"].Value,
		Points:     []figure.Point{},
	}
	names := packageNames(list)
	for i, x := range list {
		p := comparedTo{
			Name: names[i], Dir: x.Dir, Bytes: x.Cost.Bytes, BitsPerWeight: x.Cost.BitsPerWeight(),
			DeviceBytes: x.Cost.Memory.Total(assemble.DeviceContext), NotFinite: x.Evaluation.NotFinite,
		}
		if x.Manifest != nil {
			p.Digest = x.Manifest.Digest
		}
		if p.NotFinite == 0 {
			m := x.Evaluation.Metrics()
			at := func(v float64) *float64 { return &v }
			p.KL, p.KLStdErr, p.KLFloat = at(m["kl"].Value), at(m["kl"].StdErr), at(m["kl_float"].Value)
			p.Perplexity, p.Ratio, p.Top1 = at(m["perplexity"].Value), at(m["perplexity"].Value/r.Perplexity), at(m["same_top_token"].Value)
		}
		r.Packages = append(r.Packages, p)
	}
	for i := range r.Packages {
		p := &r.Packages[i]
		p.Front = p.KL != nil && !slices.ContainsFunc(list, func(q stage.Compared) bool {
			kl, stderr := verify.Difference(&q.Evaluation.Int8.KL, &list[i].Evaluation.Int8.KL)
			return q.Evaluation.NotFinite == 0 && figure.Better(q.Cost.Bytes, p.Bytes, kl, stderr)
		})
	}
	slices.SortStableFunc(r.Packages, func(a, b comparedTo) int {
		return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return r
}

// packageNames returns the last path elements of the directories where these differ, and the whole paths otherwise.
func packageNames(list []stage.Compared) []string {
	count := map[string]int{}
	base := func(dir string) string {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		return filepath.Base(dir)
	}
	for _, x := range list {
		count[base(x.Dir)]++
	}
	names := make([]string, len(list))
	for i, x := range list {
		if names[i] = base(x.Dir); count[names[i]] > 1 {
			names[i] = x.Dir
		}
	}
	return names
}

// findEngines sets the engine that each package needs, from its manifest or, without one, from its contents.
func (r *comparison) findEngines(list []stage.Compared) error {
	for i := range r.Packages {
		p := &r.Packages[i]
		k := slices.IndexFunc(list, func(x stage.Compared) bool { return x.Dir == p.Dir })
		if m := list[k].Manifest; m != nil {
			p.MinimumEngine = m.MinimumEngine
			continue
		}
		o, err := look(p.Dir)
		if err != nil {
			return err
		}
		p.MinimumEngine = o.MinimumEngine
	}
	return nil
}

// plotPoints returns the points that can be plotted.
func (r *comparison) plotPoints() []figure.Point {
	var points []figure.Point
	for _, p := range r.Packages {
		if p.KL != nil {
			kind := figure.Rest
			if p.Front {
				kind = figure.Front
			}
			points = append(points, figure.Point{Name: p.Name, Bytes: p.Bytes, KL: *p.KL, StdErr: *p.KLStdErr, Kind: kind})
		}
	}
	return append(points, r.Points...)
}

// heads are the columns of the table, numbers with a > before them.
var heads = []string{
	"package", "", ">MB", ">bits/weight", ">device MiB", ">KL, nats", ">±", ">weights alone", ">perplexity", ">ratio", ">same next token",
	"needs MNN",
}

// rows are the lines of the table.
func (r *comparison) rows() [][]string {
	number := func(format string, v *float64, scale float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf(format, *v*scale)
	}
	var list [][]string
	for _, p := range r.Packages {
		star := ""
		if p.Front {
			star = "*"
		}
		list = append(list, []string{
			p.Name, star, fmt.Sprintf("%.2f", float64(p.Bytes)/1e6), fmt.Sprintf("%.2f", p.BitsPerWeight),
			fmt.Sprintf("%.1f", float64(p.DeviceBytes)/(1<<20)), number("%.3g", p.KL, 1), number("%.1g", p.KLStdErr, 1),
			number("%.3g", p.KLFloat, 1), number("%.4g", p.Perplexity, 1), number("%.4f", p.Ratio, 1), number("%.2f %%", p.Top1, 100),
			p.MinimumEngine,
		})
	}
	return list
}

// facts describes the source and the text.
func (r *comparison) facts() [][2]string {
	scored := fmt.Sprintf("%d windows of %d tokens, %d positions scored", r.Text.Windows, r.Text.Window, r.Text.Scored)
	if r.Text.ScoreFrom > 0 {
		scored += fmt.Sprintf(", from %d on", r.Text.ScoreFrom)
	}
	return [][2]string{{"source", fmt.Sprintf("%s, perplexity %.4g", r.Source, r.Perplexity)}, {"text", r.Text.Name + ", " + scored}}
}

// broken lists the packages that compute no numbers.
func (r *comparison) broken() []string {
	var list []string
	for _, p := range r.Packages {
		if p.NotFinite > 0 {
			list = append(list, fmt.Sprintf("note: %s has NaN or infinite logits at %d positions", p.Name, p.NotFinite))
		}
	}
	return list
}

// The explanations of the table.
const (
	starText = "best at its size: no other package is as close and smaller, or as small and closer; " +
		"sizes within 0.5 % and divergences within 2 standard errors of their difference count as equal"
	errorText = "standard error over the windows"
	sizeText  = "Quality over size: smaller and closer to the source is better."
)

// page returns the comparison in HTML.
func (r *comparison) page() ([]byte, error) {
	c := pages.Comparison{
		Title: "Packages of " + filepath.Base(r.Source), Lead: []string{sizeText}, Tool: "llmexport " + stage.Version, Points: r.plotPoints(),
		Table:  pages.Table{Caption: "The packages by size", Head: pages.Columns(heads...), Rows: r.rows()},
		Legend: append([]string{"* " + starText, "± " + errorText}, r.broken()...),
	}
	c.Table.Head[1].Text = "best"
	shown := *r
	shown.Source = filepath.Base(r.Source) // others may read the page
	for _, f := range shown.facts() {
		c.Lead = append(c.Lead, f[0]+": "+f[1])
	}
	return pages.Compare(c)
}

func (r *comparison) write(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", sizeText); err != nil {
		return err
	}
	s := sheet.New()
	for _, f := range r.facts() {
		s.Row(f[0], f[1])
	}
	errs := []error{s.Write(w, true)}
	s = sheet.New(heads...)
	for _, row := range r.rows() {
		cells := make([]any, len(row))
		for i, c := range row {
			cells[i] = c
		}
		s.Row(cells...)
	}
	errs = append(errs, s.Write(w, false))
	_, err := fmt.Fprintf(w, "\n*  %s\n±  %s\n", strings.Replace(starText, "; ", ";\n   ", 1), errorText)
	errs = append(errs, err)
	for _, note := range r.broken() {
		_, err := fmt.Fprintf(w, "\n%s\n", sheet.Plain(note))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
