package kernel

// Choice is how gptq chooses grids and codes of rows that make up for each other's errors, row after row and column by column; runs of
// rows do not depend on each other. Package quant defines it. All matrices are row-major and without gaps.
type Choice struct {
	Cols, Block, Candidates int // a row has Cols/Block blocks
	Bits                    int
	Half                    bool // scales and zero terms are rounded to half precision
	Runs                    []Mixed

	Factor     Factor    // [Cols, Cols], by position
	Importance []float32 // of positions
	Order      []int     // the column of every position; positions of a block lie together
}

// Mixed are rows of a [Choice].
type Mixed struct {
	Rows        int
	Codes       []uint8   // [Rows, Cols], as they are stored: the result
	Scale, Zero []float32 // [Rows, blocks]: the result, or of blocks of more than 128 columns what is given. Zero is nil for symmetric grids
	Target      []float32 // [Rows, Cols]
	Order       []int     // the row of every position
	Mix         []float32 // [Rows, Rows], by positions: what rows take from those behind them, above the diagonal
	// Left is set where the run is left to the caller, because numbers outgrow float32 or a block has no grid. Nothing else changes then.
	Left bool
}

// Multiplications implements [Work].
func (c *Choice) Multiplications() (n int) {
	const candidate, polish, tries = 33, 434, 13 // of a weight: as in a [Feedback], and grids that are tried with feedback within the block
	for _, run := range c.Runs {
		m := run.Rows * c.Cols
		n += m * (c.Cols + run.Rows) / 2
		if c.Block <= ReachColumns {
			n += m * (candidate*c.Candidates + polish + tries*c.Block/2)
		}
	}
	return n
}
