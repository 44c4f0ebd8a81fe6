package figure

import (
	"strings"
)

// Value is a number of a series, for example of a layer.
type Value struct {
	X, Y float64
	// Name is what a tooltip shows.
	Name string
}

const seriesHeight = 280

// Bars draws a bar for every value, from the first X on, with a dashed line at limit unless that is 0 or far above all bars.
func Bars(title, note, xName, yName string, values []Value, limit float64) *Figure {
	f, r := series(title, note, values)
	x, y := scale(values, r, 0.5)
	near := limit > 0 && limit < 4*y.high
	if near {
		y.high = max(y.high, limit*1.05)
	}
	x.whole()
	y.linear((r.bottom-r.top)/40, 1)
	f.lines(r, x, y, xName, yName)
	width := (x.place(1) - x.place(0)) * 0.8
	for _, v := range values {
		f.printf(`<rect class="dot" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`+"\n",
			px(x.place(v.X)-width/2), px(y.place(v.Y)), px(width), px(r.bottom-y.place(v.Y)), escape(v.Name+": "+short(v.Y)))
	}
	if near {
		f.printf(`<path class="limit" d="M%s %sH%s"/>`, px(r.left), px(y.place(limit)), px(r.right))
		f.text(r.right-4, y.place(limit)-5, ` text-anchor="end" class="name"`, "limit "+short(limit))
	}
	return f
}

// Band draws a line through values and the area from there up to highs, which have the same X.
func Band(title, note, xName, yName string, values, highs []Value) *Figure {
	f, r := series(title, note, values)
	x, y := scale(append(append([]Value{}, values...), highs...), r, 0)
	x.linear((r.right-r.left)/70, 1)
	y.linear((r.bottom-r.top)/40, 1)
	f.lines(r, x, y, xName, yName)
	points := func(list []Value) []string {
		out := make([]string, len(list))
		for i, v := range list {
			out[i] = px(x.place(v.X)) + " " + px(y.place(v.Y))
		}
		return out
	}
	low, high := points(values), points(highs)
	area := append([]string{}, low...)
	for i := range high {
		area = append(area, high[len(high)-1-i])
	}
	f.printf(`<path class="band" d="M%sZ"/><path class="front" d="M%s"/>`+"\n", strings.Join(area, "L"), strings.Join(low, "L"))
	for _, list := range [][]Value{values, highs} {
		for _, v := range list {
			f.printf(`<circle class="dot" cx="%s" cy="%s" r="2.5"><title>%s</title></circle>`,
				px(x.place(v.X)), px(y.place(v.Y)), escape(v.Name+": "+short(v.Y)))
		}
	}
	f.body.WriteByte('\n')
	return f
}

func series(title, note string, values []Value) (*Figure, frame) {
	f := &Figure{Title: title, Summary: seriesSummary(note, values), width: Narrow.Width, height: seriesHeight}
	f.head(note)
	return f, frame{64, 56, float64(f.width - 16), float64(f.height - 48)}
}

func seriesSummary(note string, values []Value) string {
	if len(values) == 0 {
		return note
	}
	least, most := values[0], values[0]
	for _, v := range values {
		if v.Y < least.Y {
			least = v
		}
		if v.Y > most.Y {
			most = v
		}
	}
	return note + ": least " + short(least.Y) + " (" + least.Name + "), most " + short(most.Y) + " (" + most.Name + ")."
}

// scale returns axes for all values, with a margin left and right; the vertical one begins at 0.
func scale(values []Value, r frame, margin float64) (x, y axis) {
	x, y = axis{0, 0, r.left, r.right, nil}, axis{0, 0, r.bottom, r.top, nil}
	for i, v := range values {
		if i == 0 {
			x.low, x.high = v.X, v.X
		}
		x.low, x.high, y.high = min(x.low, v.X), max(x.high, v.X), max(y.high, v.Y)
	}
	x.low, x.high = x.low-margin, x.high+margin
	if x.high <= x.low {
		x.low, x.high = x.low-1, x.low+1
	}
	if y.high *= 1.05; y.high == 0 {
		y.high = 1
	}
	return x, y
}

// whole sets about eight marks at whole numbers.
func (a *axis) whole() {
	b := *a
	b.linear(8, 1)
	if step := tickStep((a.high - a.low) / 8); step < 1 {
		b.ticks = nil
		b.linear(max(1, a.high-a.low), 1)
	}
	a.ticks = b.ticks
}
