// Package estimate predicts the work of every stage of a run from the description of a model and the options of a recipe, without
// any weights, and how long a machine takes for it: [Probe] measures the rates of the machine.
//
// Nothing here affects a result: estimates are shown to the user only.
package estimate

import (
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/quant"
)

// Prepare is the work of preparing an encoder for matrices of cols columns, with the moments between two streams or without.
func Prepare(q quant.Quantizer, cols int, cross bool) (w effort.Work) {
	if _, ok := q.(*quant.GPTQ); !ok {
		return w
	}
	n := float64(cols)
	w[effort.Product] = 2 * n * n * n / 3
	if cross {
		w[effort.Product] += 2 * n * n * n
	}
	return w
}

// Numbers of operations that encoders spend on a weight in loops of single numbers.
const (
	roundingOps  = 12         // of rounding a weight and taking its error
	feedbackOps  = 2 * 32 / 2 // of propagating an error within a panel of 32 columns
	descentOps   = 14         // of moving a code in a sweep
	gridTries    = 13         // grids that are tried with feedback within a block
	tryOps       = 25         // of feedback within a block, for one of them
	pursuitOps   = 60         // of choosing a code for what rows before it left, with feedback within a block
	aimOps       = 10         // of moving a target, and of weighing how far
	squareOps    = 4 * 64     // of products with the square of the moments of a block
	learningOps  = 60         // of a step of gradient descent
	halvingOps   = 60         // of a round of half-quadratic splitting
	polishLanes  = 2 * 31     // grids next to the best one that a search tries
	anchorLanes  = 3          // grids for each candidate of a search
	errorMatrix  = 4          // times rows x columns²: errors of outputs, with and without codes
	foldingRows  = 512        // rows of a matrix that foldings judge by
	foldingTries = 17         // scales that they try
)

// Rescale is the work of computing weights from codes and summing their gradients over blocks, once.
func Rescale(weights int) (w effort.Work) {
	w[effort.Scalar], w[effort.Memory] = 8*float64(weights), 8*float64(weights)
	return w
}

// trials are the weights that a search for grids compares.
func trials(weights float64, candidates int) effort.Work {
	return effort.Of(effort.Trial, weights*float64(anchorLanes*candidates+polishLanes))
}

// Encode is the work of choosing the codes of rows of a matrix with a prepared encoder.
func Encode(q quant.Quantizer, rows, cols int, cross bool) (w effort.Work) {
	m, n := float64(rows), float64(cols)
	weights := m * n
	switch q := q.(type) {
	case *quant.GPTQ:
		w = trials(weights, q.Candidates)
		sweeps := float64(q.Sweeps)
		w[effort.Product] = weights*n + sweeps*2*weights*n
		if cross {
			w[effort.Product] += 2 * weights * n
		}
		w[effort.Scalar] = weights * (feedbackOps + roundingOps + sweeps*descentOps)
	case *quant.Search:
		w = trials(weights, q.Candidates)
	case *quant.OmniQuant:
		w[effort.Product] = float64(q.Steps+1) * 2 * weights * n
		w[effort.Scalar] = float64(q.Steps+1) * weights * learningOps
	case *quant.HQQ:
		w[effort.Scalar] = float64(q.Iterations) * weights * halvingOps
	}
	w[effort.Element] += 2 * weights
	return w
}

// Refine is the work of encoding a matrix whose rows make up for each other's errors, all but the moments of outputs.
func Refine(q quant.Quantizer, rows, cols int, cross bool) (w effort.Work) {
	x, ok := q.(*quant.GPTQ)
	if !ok || !Couples(q) {
		return w
	}
	n, weights, sweeps := float64(cols), float64(rows)*float64(cols), float64(x.Sweeps)
	run := float64(coupled(rows))
	w = trials(weights, x.Candidates)
	w[effort.Product] = weights*(n+3*run) + sweeps*weights*(2*n+3*run+squareOps)
	if cross {
		w[effort.Product] += 2 * weights * n
	}
	w[effort.Scalar] = weights * (pursuitOps + gridTries*tryOps + sweeps*descentOps)
	w[effort.Element] += 2 * weights
	return w
}

// Aim is the work of letting a matrix make up for what the states lack.
func Aim(rows, cols int) (w effort.Work) {
	weights := float64(rows) * float64(cols)
	w[effort.Product], w[effort.Scalar] = 2*weights*float64(cols), aimOps*weights
	return w
}

// Residue is the work of adding the products of so many vectors of cols elements with what the states, of rows elements, lack.
func Residue(vectors, rows, cols int) effort.Work {
	return effort.Of(effort.Product, 2*float64(vectors)*float64(rows)*float64(cols))
}

// Couples reports whether a quantizer lets the rows of a matrix make up for each other's errors.
func Couples(q quant.Quantizer) bool {
	c, ok := q.(interface{ Couples() bool })
	return ok && c.Couples()
}

// coupled is how many rows of a matrix are coupled.
func coupled(rows int) int {
	runs := (rows + quant.CoupledRows - 1) / quant.CoupledRows
	return (rows + runs - 1) / runs
}

// OutputError is the work of measuring the error of the outputs of a matrix by the moments of its input.
func OutputError(rows, cols int) effort.Work {
	return effort.Of(effort.Product, errorMatrix*float64(rows)*float64(cols)*float64(cols))
}

// Fold is the work of a folding that judges by a matrix [rows, cols], which q will encode.
func Fold(q quant.Quantizer, rows, cols int) effort.Work {
	rows = min(rows, foldingRows)
	if q.Needs() != quant.Nothing {
		q = quant.NewSearch() // stands in
	}
	return Encode(q, rows, cols, false).Plus(OutputError(rows, cols).Times(.5)).Times(foldingTries)
}

// crosses reports whether a quantizer reads the moments between the float model and the quantized one.
func crosses(q quant.Quantizer) bool {
	c, ok := q.(interface{ Crosses() bool })
	return ok && c.Crosses()
}
