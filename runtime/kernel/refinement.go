package kernel

// Refinement is the refinement of gptq: rows of a run make up for each other's errors, runs do not depend on each other. Package quant
// defines it. All matrices are row-major and without gaps.
type Refinement struct {
	Cols, Block, Sweeps int // a row has Cols/Block blocks
	Bits                int
	Half                bool // scales and zero terms are rounded to half precision
	Runs                []Run
	Threads             int // of this CPU, for Moves of all runs

	Hessian Factor // [Cols, Cols], symmetric, by position
	Ridge   float32
	Sums    []float32 // of the rows of the damped Hessian over the block of the row
	Totals  []float64 // for every block the sum of them
}

// Run are rows of a [Refinement].
type Run struct {
	Rows        int
	Codes       []uint8   // [Rows, Cols], as they are stored; they change
	Scale, Zero []float32 // [Rows, blocks]; they change. Zero is nil for symmetric grids
	Errors      []float32 // [Rows, Cols], of the weights that codes and scales stand for
	Outputs     []float32 // [Rows, Rows], damped moments of gradients
	Moves       Moves     // may be nil
}

// Moves moves the rows of a [Run] on this CPU, one after the other, for a device that computes the products between: one thread of a CPU does
// a chain of short steps faster. Codes, Scale and Zero of the run change.
type Moves interface {
	// Begin prepares the block of columns that begins with lo, unless Move did that. Move stores in changes, [Rows, Block], what it does to
	// the weights.
	Begin(lo int, changes []float32)
	// Move moves the block, of which gradients, [Rows, Block], are those of the objective; they change. It reports whether anything moved.
	// Meanwhile it may prepare the block that begins with next, whose changes are other memory, and which has to be the next one then; next is -1
	// if there is none.
	Move(gradients []float32, next int, changes []float32) bool
}

// Multiplications implements [Work].
func (r *Refinement) Multiplications() (n int) {
	for _, run := range r.Runs {
		m := run.Rows * r.Cols
		n += r.Sweeps * m * (r.Cols + 2*run.Rows)
	}
	return n
}
