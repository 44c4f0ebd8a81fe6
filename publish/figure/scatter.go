package figure

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Point is a package: its size and its divergence from the source.
type Point struct {
	Name  string  `json:"name"`
	Bytes int64   `json:"bytes"`
	KL    float64 `json:"kl"`
	// StdErr is the standard error of KL, 0 if unknown.
	StdErr float64 `json:"std_err,omitempty"`
	Kind   Kind    `json:"-"`
}

// Kind determines how a point is drawn.
type Kind int

// The kinds.
const (
	// Rest is a package for which another one is the better choice.
	Rest Kind = iota
	// Front is a package for which no other one is both smaller and closer to the source.
	Front
	// Given was measured elsewhere.
	Given
	// Source is the checkpoint, whose divergence is 0.
	Source
)

// classes are the style classes of points, legends their meaning.
var (
	classes = map[Kind]string{Rest: "rest", Front: "dot", Given: "given", Source: "source"}
	legends = []struct {
		kind Kind
		text string
	}{{Front, "best at its size"}, {Rest, "another is the better choice"}, {Given, "measured elsewhere"}, {Source, "the source"}}
)

// Size of a scatter plot, in pixels.
type Size struct{ Width, Height int }

// The sizes: a file of its own, and a part of a page that is readable on a phone.
var (
	Wide   = Size{860, 520}
	Narrow = Size{480, 400}
)

const (
	dotRadius = 4.5
	// charWidth and lineHeight are generous estimates for text of 12 pixels.
	charWidth, lineHeight = 6.9, 14
	// leastExponent is the power of ten at which smaller divergences are drawn, as a logarithmic axis has no 0.
	leastExponent = -6
	// tickWidth is the approximate distance of marks on the size axis.
	tickWidth = 90
)

// Scatter draws divergence, on a logarithmic axis, over size.
func Scatter(title string, points []Point, size Size) *Figure {
	points = slices.Clone(points)
	slices.SortStableFunc(points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.KL, b.KL))
	})
	f := &Figure{Title: title, Summary: scatterSummary(points), width: size.Width, height: size.Height}
	note := "lower left is better: smaller and closer to the source"
	if slices.ContainsFunc(points, func(p Point) bool { return p.StdErr > 0 }) {
		note += "; bars: ± 1 standard error"
	}
	f.head(note)
	r := frame{74, 78, float64(size.Width - 16), float64(size.Height - 48)}
	f.legend(r, points)
	x, y := axes(points, r)
	f.lines(r, x, y, "size, MB", "KL divergence, nats per token")
	dots := make([]spot, len(points))
	var line []string
	for i, p := range points {
		dots[i] = spot{x.place(float64(p.Bytes)), y.place(max(logKL(p.KL), y.low))}
		if p.Kind == Front {
			line = append(line, px(dots[i].x)+" "+px(dots[i].y))
		}
	}
	if len(line) > 1 {
		f.printf(`<path class="front" d="M%s"/>`+"\n", strings.Join(line, "L"))
	}
	for i, p := range points {
		f.whisker(p, dots[i].x, &y)
	}
	for i, l := range labels(points, dots, r) {
		d, p := dots[i], points[i]
		if l.leader {
			f.printf(`<path class="leader" d="M%s %sL%s %s"/>`+"\n", px(d.x), px(d.y), px(l.joint.x), px(l.joint.y))
		}
		f.printf(`<circle class="%s" cx="%s" cy="%s" r="%s"><title>%s</title></circle>`, classes[p.Kind], px(d.x), px(d.y), px(dotRadius),
			escape(pointText(p)))
		f.text(l.x, l.y+lineHeight-3, ` class="name"`, p.Name)
	}
	return f
}

// pointText is a point in words.
func pointText(p Point) string {
	text := fmt.Sprintf("%s: %s MB, %s nats", p.Name, strconv.FormatFloat(float64(p.Bytes)/1e6, 'f', 1, 64), short(p.KL))
	if p.StdErr > 0 {
		text += " ± " + short(p.StdErr)
	}
	return text
}

// short formats a number to three digits.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

func scatterSummary(points []Point) string {
	if len(points) == 0 {
		return "No package could be measured."
	}
	list := make([]string, len(points))
	for i, p := range points {
		list[i] = pointText(p)
	}
	return "KL divergence from the source over size. " + strings.Join(list, "; ") + "."
}

// legend explains the kinds of points that occur, unless all are alike.
func (f *Figure) legend(r frame, points []Point) {
	x := titleLeft + dotRadius
	for _, l := range legends {
		if !slices.ContainsFunc(points, func(p Point) bool { return p.Kind == l.kind }) {
			continue
		}
		f.printf(`<circle class="%s" cx="%s" cy="%s" r="%s"/>`, classes[l.kind], px(x), px(r.top-20), px(dotRadius))
		f.text(x+10, r.top-16, "", l.text)
		x += 22 + 5.9*float64(len(l.text))
	}
}

// whisker draws the standard error of a divergence.
func (f *Figure) whisker(p Point, x float64, y *axis) {
	if !(p.StdErr > 0) {
		return
	}
	low, high := y.place(max(logKL(p.KL-p.StdErr), y.low)), y.place(min(logKL(p.KL+p.StdErr), y.high))
	f.printf(`<path class="bar" d="M%s %sV%sM%s %sh6M%s %sh6"/>`+"\n", px(x), px(low), px(high), px(x-3), px(low), px(x-3), px(high))
}

// spot is a position, in pixels from the left and the top.
type spot struct{ x, y float64 }

// axes returns a linear axis for bytes and one for the decadic logarithm of divergences, with a margin around all
// points.
func axes(points []Point, r frame) (x, y axis) {
	x = axis{math.Inf(1), math.Inf(-1), r.left, r.right, nil}
	y = axis{math.Inf(1), math.Inf(-1), r.bottom, r.top, nil}
	for _, p := range points {
		x.low, x.high = min(x.low, float64(p.Bytes)), max(x.high, float64(p.Bytes))
		if p.Kind == Source { // at the lower edge, as its divergence is 0
			continue
		}
		y.low, y.high = min(y.low, logKL(p.KL)), max(y.high, logKL(p.KL+p.StdErr))
		if low := p.KL - p.StdErr; low > 0 {
			y.low = min(y.low, logKL(low))
		}
	}
	if len(points) == 0 {
		x.low, x.high = 0, 1e6
	}
	if y.low > y.high {
		y.low, y.high = -3, 0
	}
	room := max(float64(0.08*(x.high-x.low)), float64(0.02*x.high), 1)
	x.low, x.high = max(0, x.low-room), x.high+float64(2*room) // room for labels on the right
	x.linear((r.right-r.left)/tickWidth, 1e6)
	y.low, y.high = y.low-0.15, y.high+0.15
	// Marks are at 1, 2 and 5 if there are few decades.
	marks := []float64{1, 2, 5}
	switch span := y.high - y.low; {
	case span > 3:
		marks = marks[:1]
	case span < 0.7:
		marks = []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9}
	}
	for decade := int(math.Floor(y.low)); decade <= int(math.Floor(y.high)); decade++ {
		for _, m := range marks {
			v := float64(decade) + float64(kernel.Log(m)/kernel.Log(10))
			if v < y.low || v > y.high {
				continue
			}
			text := decimal(m, decade)
			if decade == leastExponent && m == 1 && slices.ContainsFunc(points, Point.tiny) {
				text = "≤ " + text
			}
			y.ticks = append(y.ticks, tick{y.place(v), text})
		}
	}
	return x, y
}

// tiny reports whether the divergence of a package is drawn larger than it is.
func (p Point) tiny() bool { return p.Kind != Source && logKL(p.KL) <= leastExponent }

// decimal formats m*10^exponent.
func decimal(m float64, exponent int) string {
	if exponent < -4 || exponent > 3 {
		return fmt.Sprintf("%ge%d", m, exponent)
	}
	return strconv.FormatFloat(m*[]float64{1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100, 1000}[exponent+4], 'g', 3, 64)
}

// logKL returns the decadic logarithm of a divergence, at least leastExponent.
func logKL(kl float64) float64 {
	if kl <= 0 {
		return leastExponent
	}
	return max(kernel.Log(kl)/kernel.Log(10), leastExponent)
}
