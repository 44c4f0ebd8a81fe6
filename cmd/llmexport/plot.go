package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// plotPoint is a package in a plot: its size and its divergence.
type plotPoint struct {
	Name  string  `json:"name"`
	Bytes int64   `json:"bytes"`
	KL    float64 `json:"kl"`
	// front reports whether no other measured package is both smaller and closer to the source, given whether the
	// numbers come from the command line.
	front, given bool
}

// Sizes of a plot, in pixels.
const (
	plotWidth, plotHeight   = 860, 520
	marginLeft, marginRight = 84, 24
	marginTop, marginBottom = 24, 56
	innerWidth, innerHeight = plotWidth - marginLeft - marginRight, plotHeight - marginTop - marginBottom
	dotRadius               = 4.5
	// charWidth and lineHeight are generous estimates for text of 12 pixels.
	charWidth, lineHeight = 6.9, 14
)

const (
	// leastPlotExponent is the power of ten at which smaller divergences are drawn, as a logarithmic axis has no 0.
	leastPlotExponent = -6
	// xTicks is the approximate number of marks on the size axis.
	xTicks = 8
)

// plotStyle is readable in light and in dark mode; it includes the background, because a viewer may use either.
const plotStyle = `
.page{fill:#fff}text{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.name{paint-order:stroke;stroke:#fff;stroke-width:3px}.axis{stroke:#59636e;fill:none}.grid{stroke:#e3e7eb;fill:none}
.leader{stroke:#818b98;fill:none}.front{stroke:#0969da;fill:none;stroke-width:1.5}.dot{fill:#0969da}.rest{fill:#818b98}
.given{stroke:#bc4c00;fill:#fff;stroke-width:1.5}
@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.name{stroke:#0d1117}.axis{stroke:#9198a1}
.grid{stroke:#2a3038}.leader{stroke:#7d8590}.front{stroke:#4493f8}.dot{fill:#4493f8}.rest{fill:#7d8590}
.given{stroke:#f0883e;fill:#0d1117}}
`

// plot draws divergence, on a logarithmic axis, over size, and returns an SVG document. The same points give the same
// bytes on every machine.
func plot(points []plotPoint, title string) string {
	points = slices.Clone(points)
	slices.SortStableFunc(points, func(a, b plotPoint) int { return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.KL, b.KL)) })
	x, y := axes(points)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", plotWidth,
		plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n", escape(title), plotStyle)
	const bottom, right = marginTop + innerHeight, marginLeft + innerWidth
	for _, t := range x.ticks {
		fmt.Fprintf(&b, `<path class="grid" d="M%s %dV%d"/><text x="%s" y="%d" text-anchor="middle">%s</text>`+"\n", px(t.at), marginTop, bottom,
			px(t.at), bottom+18, t.text)
	}
	for _, t := range y.ticks {
		fmt.Fprintf(&b, `<path class="grid" d="M%d %sH%d"/><text x="%d" y="%s" text-anchor="end">%s</text>`+"\n", marginLeft, px(t.at), right,
			marginLeft-8, px(t.at+4), t.text)
	}
	fmt.Fprintf(&b, `<path class="axis" d="M%d %dV%dH%d"/>`+"\n", marginLeft, marginTop, bottom, right)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">size, MB</text>`+"\n", marginLeft+innerWidth/2, plotHeight-14)
	fmt.Fprintf(&b, `<text transform="translate(18 %d) rotate(-90)" text-anchor="middle">KL divergence from the source, nats per token</text>`+"\n", marginTop+innerHeight/2)

	dots := make([]spot, len(points))
	var line []string
	for i, p := range points {
		dots[i] = spot{x.place(float64(p.Bytes)), y.place(logKL(p.KL))}
		if p.front {
			line = append(line, px(dots[i].x)+" "+px(dots[i].y))
		}
	}
	if len(line) > 1 {
		fmt.Fprintf(&b, `<path class="front" d="M%s"/>`+"\n", strings.Join(line, "L"))
	}
	for i, l := range labels(points, dots) {
		d := dots[i]
		if l.leader {
			fmt.Fprintf(&b, `<path class="leader" d="M%s %sL%s %s"/>`+"\n", px(d.x), px(d.y), px(l.joint.x), px(l.joint.y))
		}
		class := "rest"
		switch {
		case points[i].given:
			class = "given"
		case points[i].front:
			class = "dot"
		}
		fmt.Fprintf(&b, `<circle class="%s" cx="%s" cy="%s" r="%s"/><text class="name" x="%s" y="%s">%s</text>`+"\n",
			class, px(d.x), px(d.y), px(dotRadius), px(l.x), px(l.y+lineHeight-3), escape(points[i].Name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// spot is a position in the plot, in pixels from the left and the top.
type spot struct{ x, y float64 }

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

// axes returns a linear axis for bytes and one for the decadic logarithm of divergences, with a margin around all
// points.
func axes(points []plotPoint) (x, y axis) {
	x = axis{math.Inf(1), math.Inf(-1), marginLeft, marginLeft + innerWidth, nil}
	y = axis{math.Inf(1), math.Inf(-1), marginTop + innerHeight, marginTop, nil}
	for _, p := range points {
		x.low, x.high = min(x.low, float64(p.Bytes)), max(x.high, float64(p.Bytes))
		y.low, y.high = min(y.low, logKL(p.KL)), max(y.high, logKL(p.KL))
	}
	if len(points) == 0 {
		x.low, x.high, y.low, y.high = 0, 1e6, -3, 0
	}
	room := max(float64(0.08*(x.high-x.low)), float64(0.02*x.high), 1)
	x.low, x.high = max(0, x.low-room), x.high+float64(2*room) // room for labels on the right
	step := tickStep((x.high - x.low) / xTicks)
	for k := math.Ceil(x.low / step); float64(k*step) <= x.high; k++ {
		x.ticks = append(x.ticks, tick{x.place(float64(k * step)), strconv.FormatFloat(float64(k*step)/1e6, 'f', -1, 64)})
	}
	y.low, y.high = y.low-0.15, y.high+0.15
	// Marks are at 1, 2 and 5 if there are few decades.
	marks := []float64{1, 2, 5}
	if y.high-y.low > 3 {
		marks = marks[:1]
	}
	for decade := int(math.Floor(y.low)); decade <= int(math.Floor(y.high)); decade++ {
		for _, m := range marks {
			v := float64(decade) + float64(kernel.Log(m)/kernel.Log(10))
			if v < y.low || v > y.high {
				continue
			}
			text := decimal(int(m), decade)
			if decade == leastPlotExponent && m == 1 && slices.ContainsFunc(points, func(p plotPoint) bool { return logKL(p.KL) <= leastPlotExponent }) {
				text = "≤ " + text
			}
			y.ticks = append(y.ticks, tick{y.place(v), text})
		}
	}
	return x, y
}

// decimal formats m*10^exponent.
func decimal(m, exponent int) string {
	if exponent < -4 || exponent > 3 {
		return fmt.Sprintf("%de%d", m, exponent)
	}
	return strconv.FormatFloat(float64(m)*[]float64{1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100, 1000}[exponent+4], 'g', 3, 64)
}

// tickStep returns the least 1, 2 or 5 times a power of ten that is at least v.
func tickStep(v float64) float64 {
	step := 1.0
	for {
		for _, m := range []float64{1, 2, 5} {
			if s := float64(step * m); s >= v {
				return s
			}
		}
		step *= 10
	}
}

// logKL returns the decadic logarithm of a divergence, at least leastPlotExponent.
func logKL(kl float64) float64 {
	if kl <= 0 {
		return leastPlotExponent
	}
	return max(kernel.Log(kl)/kernel.Log(10), leastPlotExponent)
}

// px formats pixels to a tenth.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // writes to a Builder do not fail
	return b.String()
}
