// Package figure draws the figures of reports, cards and comparisons as SVG, without scripts: quality over size, bits of
// matrices, errors of layers and divergence over positions. The same data give the same bytes on every machine.
package figure

import (
	"encoding/xml"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Figure is a drawing with a text for those who cannot see it.
type Figure struct {
	// Title is printed above the drawing; Summary says in a sentence what it shows.
	Title, Summary string

	width, height int // pixels
	body          strings.Builder
}

// Style is the style sheet of all figures, for light and dark mode. A page that contains figures includes it once; it is part
// of the file of a figure, with its background, because a viewer may use either mode.
const Style = `
.fig text{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.fig .page{fill:#fff}.fig .title{font-size:15px;font-weight:600}.fig .note{fill:#59636e}
.fig .name{paint-order:stroke;stroke:#fff;stroke-width:3px}
.fig .axis,.fig .bar{stroke:#59636e;fill:none}.fig .grid{stroke:#e3e7eb;fill:none}
.fig .leader{stroke:#818b98;fill:none}.fig .front{stroke:#0969da;fill:none;stroke-width:1.5}
.fig .dot{fill:#0969da}.fig .rest{fill:#818b98}.fig .given{stroke:#bc4c00;fill:#fff;stroke-width:1.5}
.fig .source{stroke:#1a7f37;fill:#fff;stroke-width:1.5}
.fig .limit{stroke:#bc4c00;fill:none;stroke-dasharray:5 4}.fig .band{fill:#0969da;fill-opacity:.22}
.fig .b2{fill:#fff3b0}.fig .b3{fill:#c7e9b4}.fig .b4{fill:#7fcdbb}.fig .b5{fill:#41b6c4}.fig .b6{fill:#1a74ab}
.fig .b8{fill:#225ea8}.fig .b16{fill:#0c2c84}
.fig .on2,.fig .on3,.fig .on4,.fig .on5{fill:#1f2328}.fig .on6,.fig .on8,.fig .on16{fill:#fff}
@media(prefers-color-scheme:dark){.fig text{fill:#e6edf3}.fig .page{fill:#0d1117}.fig .note{fill:#9198a1}
.fig .name{stroke:#0d1117}.fig .axis,.fig .bar{stroke:#9198a1}.fig .grid{stroke:#2a3038}
.fig .leader{stroke:#7d8590}.fig .front{stroke:#4493f8}.fig .dot{fill:#4493f8}.fig .rest{fill:#7d8590}
.fig .given{stroke:#f0883e;fill:#0d1117}.fig .source{stroke:#3fb950;fill:#0d1117}.fig .limit{stroke:#f0883e}
.fig .band{fill:#4493f8;fill-opacity:.3}
.fig .on2,.fig .on3,.fig .on4,.fig .on5{fill:#1f2328}.fig .on6,.fig .on8,.fig .on16{fill:#fff}}
`

// File returns an SVG document with title, style and background.
func (f *Figure) File() []byte {
	return []byte(f.open(fmt.Sprintf(` width="%d" height="%d"`, f.width, f.height), 0) +
		"<style>" + Style + "</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n" + f.body.String() + "</svg>\n")
}

// Inline returns an element for a page that includes [Style] and has the title as a heading. It is as wide as its container.
func (f *Figure) Inline() template.HTML {
	return template.HTML(f.open("", titleHeight) + f.body.String() + "</svg>\n") // every text in it is escaped
}

// Join returns one drawing of several, from left to right.
func Join(title string, list ...*Figure) *Figure {
	all := &Figure{Title: title}
	var summaries []string
	for _, f := range list {
		all.printf(`<svg x="%d" y="0" width="%d" height="%d" viewBox="0 0 %d %d">`+"\n%s</svg>\n",
			all.width, f.width, f.height, f.width, f.height, f.body.String())
		all.width, all.height = all.width+f.width, max(all.height, f.height)
		summaries = append(summaries, f.Title+": "+f.Summary)
	}
	all.Summary = strings.Join(summaries, " ")
	return all
}

// open returns the start of the element, without the first pixels from the top.
func (f *Figure) open(size string, top int) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" class="fig"%s viewBox="0 %d %d %d" role="img" aria-label="%s">`+"\n",
		size, top, f.width, f.height-top, escape(f.Title+". "+f.Summary))
}

func (f *Figure) printf(format string, args ...any) { fmt.Fprintf(&f.body, format, args...) }

// text writes a text at a position; attributes is empty or begins with a space.
func (f *Figure) text(x, y float64, attributes, s string) {
	f.printf(`<text x="%s" y="%s"%s>%s</text>`+"\n", px(x), px(y), attributes, escape(s))
}

// head writes the title and a note below it.
func (f *Figure) head(note string) {
	f.text(titleLeft, 22, ` class="title"`, f.Title)
	if note != "" {
		f.text(titleLeft, 40, ` class="note"`, note)
	}
}

const titleLeft, titleHeight = 12, 27

// frame is the area of a drawing inside its axes, in pixels.
type frame struct{ left, top, right, bottom float64 }

// lines draws both axes with grid, numbers and names.
func (f *Figure) lines(r frame, x, y axis, xName, yName string) {
	for _, t := range x.ticks {
		f.printf(`<path class="grid" d="M%s %sV%s"/>`, px(t.at), px(r.top), px(r.bottom))
		f.text(t.at, r.bottom+18, ` text-anchor="middle"`, t.text)
	}
	for _, t := range y.ticks {
		f.printf(`<path class="grid" d="M%s %sH%s"/>`, px(r.left), px(t.at), px(r.right))
		f.text(r.left-8, t.at+4, ` text-anchor="end"`, t.text)
	}
	f.printf(`<path class="axis" d="M%s %sV%sH%s"/>`+"\n", px(r.left), px(r.top), px(r.bottom), px(r.right))
	f.text((r.left+r.right)/2, r.bottom+36, ` text-anchor="middle"`, xName)
	f.printf(`<text transform="translate(16 %s) rotate(-90)" text-anchor="middle">%s</text>`+"\n", px((r.top+r.bottom)/2), escape(yName))
}

// axis maps values to pixels.
type axis struct {
	low, high   float64 // values
	first, last float64 // pixels
	ticks       []tick
}

type tick struct {
	at   float64
	text string
}

func (a *axis) place(v float64) float64 {
	return a.first + float64((a.last-a.first)*((v-a.low)/(a.high-a.low)))
}

// linear sets about n marks at round values; unit divides the values that are printed.
func (a *axis) linear(n, unit float64) {
	step := tickStep((a.high - a.low) / n)
	for k := math.Ceil(a.low/step) + 0; float64(k*step) <= a.high; k++ { // + 0 makes 0 of -0
		a.ticks = append(a.ticks, tick{a.place(float64(k * step)), strconv.FormatFloat(float64(k*step)/unit, 'g', 6, 64)})
	}
}

// tickStep returns the least 1, 2 or 5 times a power of ten, from 1e-9 on, that is at least v.
func tickStep(v float64) float64 {
	for exponent := -9; ; exponent++ {
		for _, m := range []int{1, 2, 5} {
			if s, err := strconv.ParseFloat(fmt.Sprintf("%de%d", m, exponent), 64); err != nil || s >= v {
				return s
			}
		}
	}
}

// px formats pixels to a tenth.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // writes to a Builder do not fail
	return b.String()
}
