package arch

import (
	"regexp"
	"slices"
)

// View is a tensor that the checkpoint has in another form: fused with others, stacked, transposed, in another order of
// rows, or as the argument of a function. The checkpoint's tensor counts as a matrix: rows of its last dimension, all
// dimensions before it being one. Of a vector, and for a view that is a vector and not transposed, every element is a row.
type View struct {
	// Name is what a Weight calls it; the checkpoint has no tensor of this name. Rows and Cols are its shape, Cols 0 for a
	// vector.
	Name       string
	Rows, Cols int
	// Tensor is the checkpoint's. Without one, all elements are 1.
	Tensor string
	// Then names further tensors of the same kind, whose rows follow those of Tensor. Such a view has all rows as they are:
	// nothing below is set.
	Then []string
	// Runs are the rows of the tensor that make those of the view, one run behind the other; nil stands for all rows. If
	// Transposed, they are columns of the tensor instead, within its rows From to From+Cols-1 (a vector counts as one row
	// of the view).
	Runs       []Run
	Transposed bool
	From       int
	// Map is applied to every element, then the Scale of the run; then the same element of the tensor Plus, if any, is
	// added. All in float32, where any of them is set; otherwise elements keep their type and bits.
	Map  Map
	Plus string
}

// Parts lists the tensors of the checkpoint that are read for the view.
func (v *View) Parts() []string {
	return slices.DeleteFunc(append([]string{v.Tensor, v.Plus}, v.Then...), func(name string) bool { return name == "" })
}

// Run is Count rows from Start on, Step apart (0 stands for 1). Scale 0 stands for 1.
type Run struct {
	Start, Count, Step int
	Scale              float64
}

// Map is a function of one element, or of a row.
type Map string

// The maps.
const (
	OnePlus  Map = "1+w"
	NegExp   Map = "-exp(w)"
	Softplus Map = "softplus(w)"
	UnitRows Map = "w/|w|" // rows of length 1, as NormHead of Baichuan 2 has them
)

// Skip says that tensors are no part of the model that is described.
type Skip struct {
	// Match is anchored by whoever writes it.
	Match  *regexp.Regexp
	Reason string // "draft head", "vision tower"
	// Warn says that the user should hear of it.
	Warn bool
}
