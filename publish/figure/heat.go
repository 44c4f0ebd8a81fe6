package figure

import (
	"fmt"
	"strconv"
)

// Heat is a map of bits by role and layer.
type Heat struct {
	// Layers is the number of columns, Roles are the names of the rows.
	Layers int
	Roles  []string
	// Bits are the mean bits of a weight by role and layer, 0 where the layer has no such matrix.
	Bits [][]float64
}

// levels are the bits that have a colour of their own, with the name of their style class.
var levels = []int{2, 3, 4, 5, 6, 8, 16}

// level returns the level closest to a mean.
func level(bits float64) int {
	best := levels[0]
	for _, l := range levels {
		if abs(bits-float64(l)) < abs(bits-float64(best)) {
			best = l
		}
	}
	return best
}

func abs(v float64) float64 { return max(v, -v) }

const (
	heatRow  = 22.0
	heatLeft = 104.0
	heatTop  = 78.0
	// leastDigit is the least width of a cell that shows its number.
	leastDigit = 16.0
)

// Draw draws the map at the width of a page on a phone.
func (h Heat) Draw(title string) *Figure {
	bottom := heatTop + heatRow*float64(len(h.Roles))
	f := &Figure{Title: title, Summary: "The table of weights has the same numbers.", width: Narrow.Width, height: int(bottom) + 44}
	f.head("each cell is the matrices of one role in one layer")
	f.levels()
	width := (float64(f.width) - 16 - heatLeft) / float64(max(h.Layers, 1))
	for r, role := range h.Roles {
		y := heatTop + heatRow*float64(r)
		f.text(heatLeft-8, y+15, ` text-anchor="end"`, role)
		for l := range h.Layers {
			bits := h.Bits[r][l]
			if bits == 0 {
				continue
			}
			x, text := heatLeft+width*float64(l), strconv.FormatFloat(bits, 'g', 3, 64)
			f.printf(`<rect class="b%d" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`, level(bits), px(x), px(y+1),
				px(width-min(1, width/8)), px(heatRow-2), escape(fmt.Sprintf("layer %d, %s: %s bits", l, role, text)))
			if width >= leastDigit && len(text) <= 2 {
				f.text(x+width/2, y+15, fmt.Sprintf(` text-anchor="middle" class="on%d" aria-hidden="true"`, level(bits)), text)
			}
		}
		f.body.WriteByte('\n')
	}
	for l := 0; l < h.Layers; l += max(1, int(tickStep(float64(h.Layers)/8))) {
		f.text(heatLeft+width*(float64(l)+0.5), bottom+14, ` text-anchor="middle"`, strconv.Itoa(l))
	}
	f.text(heatLeft+width*float64(h.Layers)/2, bottom+32, ` text-anchor="middle"`, "layer")
	return f
}

// levels writes the legend of the colours.
func (f *Figure) levels() {
	x := float64(titleLeft)
	f.text(x, heatTop-16, "", "bits")
	x += 34
	for _, l := range levels {
		f.printf(`<rect class="b%d" x="%s" y="%s" width="26" height="16"/>`, l, px(x), px(heatTop-28))
		f.text(x+13, heatTop-16, fmt.Sprintf(` text-anchor="middle" class="on%d"`, l), strconv.Itoa(l))
		x += 30
	}
	f.body.WriteByte('\n')
}
