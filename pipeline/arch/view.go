package arch

import (
	"regexp"
	"slices"
)

// View is a tensor that the checkpoint stores in another form: fused with others, stacked, transposed, with another
// order of rows, or as the argument of a function. The checkpoint's tensor counts as a matrix: rows of its last
// dimension, with all dimensions before it merged. For a vector, and for a view that is a vector and not transposed,
// every element is a row.
type View struct {
	// Name is its name in a Weight; the checkpoint has no tensor of this name. Rows and Cols are its shape, Cols 0 for
	// a vector.
	Name       string
	Rows, Cols int
	// Tensor is the checkpoint's. Without one, all elements are 1.
	Tensor string
	// Then names further tensors of the same kind, whose rows follow those of Tensor. Such a view has all rows
	// unchanged: none of the fields below is set.
	Then []string
	// Runs are the rows of the tensor that make those of the view, one run after the other; nil stands for all rows. If
	// Transposed, they are columns of the tensor instead, within its rows From to From+Cols-1 (a vector counts as one
	// row of the view).
	Runs       []Run
	Transposed bool
	From       int
	// Zeros is the number of columns of zeros after those of the tensor, or of the tensor Side, of the same element type, if that is set. Such
	// a view has all rows unchanged, too.
	Zeros int
	Side  string
	// Flat: the view has the elements of the tensor in their order, whatever its dimensions. Only Map may be set besides.
	Flat bool
	// Map is applied to every element, then the Scale of the run; then the same element of the tensor Plus, if any, is
	// added. If any of them is set, the computation is in float32; otherwise elements keep their type and bits.
	Map  Map
	Plus string
	// Batch, if not nil, is folded in: rows are those of a convolution before a norm of batches, or for a vector their biases, which are 0
	// without Tensor.
	Batch *Batch
}

// Batch is a norm by statistics that are known: (x - Mean) * Gamma / sqrt(Variance + Eps) + Beta, each the name of a tensor with an element for
// each row.
type Batch struct {
	Gamma, Beta, Mean, Variance string
	Eps                         float64
}

// parts lists the tensors that are read for the rows of a convolution, or for their biases.
func (b *Batch) parts(bias bool) []string {
	switch {
	case b == nil:
		return nil
	case bias:
		return []string{b.Gamma, b.Variance, b.Mean, b.Beta}
	}
	return []string{b.Gamma, b.Variance}
}

// Parts lists the tensors of the checkpoint that are read for the view.
func (v *View) Parts() []string {
	all := slices.Concat([]string{v.Tensor, v.Plus, v.Side}, v.Then, v.Batch.parts(v.Cols == 0))
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// Run is Count rows from Start on, Step apart (0 stands for 1). Scale 0 stands for 1. Spare is how many rows that follow nothing needs to use.
type Run struct {
	Start, Count, Step int
	Scale              float64
	Spare              int
}

// Map is a function of one element, or of a row.
type Map string

// The maps.
const (
	OnePlus  Map = "1+w"
	NegExp   Map = "-exp(w)"
	Softplus Map = "softplus(w)"
	UnitRows Map = "w/|w|" // rows of length 1, as NormHead of Baichuan 2 has them
	// ChannelsLast makes a row [y, x, channel] of one [channel, y, x], of kernels of 3 x 3.
	ChannelsLast Map = "w[y,x,c]"
)

// Skip selects tensors that are not part of the described model.
type Skip struct {
	// Match must be anchored.
	Match  *regexp.Regexp
	Reason string // "draft head", "vision tower"
	// Warn requests a message for the user.
	Warn bool
}
