package arch

// Tower is a vision transformer with a projector. Its rows take the place of token embeddings. It reads one picture: planes of red,
// green and blue of Size x Size pixels, normalised by Mean and Deviation.
//
//	x = Embedding · patch          for each of Side x Side patches, row by row; a patch is [channel, y, x]
//	x = PreNorm([Class; x] + Positions), then the layers, then PostNorm(x)
//	x = x without its first row, if DropFirst
//	x = cells of Cell x Cell adjacent rows, each cell one row
//	rows = Projector(x)
type Tower struct {
	// ModelType is the checkpoint's word for the vision transformer.
	ModelType string
	// Grid: pictures of any size are given as patches, Frames times the same pixels [channel, frame, y, x], in the order of cells, row by row,
	// and within a cell row by row. Attention turns by the row and column of a patch.
	Grid   bool
	Frames int
	// Pixels, for a Grid: Embedding reads one frame of a patch, [y, x, channel].
	Pixels bool
	// Smooth, for a Grid: Positions are stretched as a picture is by an antialiased bilinear filter, edge to edge.
	Smooth bool
	// Padded, for a Grid, is how many patches the engine gives: those of the picture row by row, and then such of zeros. Without, it gives as
	// many as there are.
	Padded int
	// Signed: Embedding reads 2 (value - 1/2).
	Signed bool
	// Places [edges, Hidden], if they have tensors, are added to a patch by its row and by its column.
	Places [2]Weight
	// Least and Most are the numbers of rows between which the library keeps a picture of a Grid where the repository says nothing else, or 0.
	Least, Most int
	// Tiles, if not nil: a picture is cut into tiles of Size x Size pixels.
	Tiles *Tiles
	// Slices, if not nil, for a Grid: a picture becomes several views, whose rows are gathered by queries.
	Slices *Slices
	// Stages, if there are any, stand in place of all from Embedding to PostNorm: a tower of convolutions from the pixels of a picture to Side x
	// Side rows of Hidden elements.
	Stages []Stage
	// Squared: the library puts a picture into the middle of a black square.
	Squared bool
	// Counted is how many times the library counts a picture where it compares its pixels with its limits; 0 stands for 1.
	Counted int
	// Size and Patch are edges, in pixels. Size is 0 for a Grid. Pixels of the right and lower edge that make no whole patch are not read.
	Size, Patch int
	// Mean and Deviation are those of the checkpoint's library where the repository says nothing else, for pixels from 0 to 1.
	Mean, Deviation [3]float64

	Hidden    int
	Embedding Linear // [Hidden, 3*Frames*Patch*Patch], or [Hidden, Patch*Patch*3] with Pixels
	Class     Weight // [Hidden], or without tensor
	// Positions [rows, Hidden], if it has a tensor, is added to the patches. For a Grid it is a square whose corners are those of every picture
	// and which is interpolated in between, unless Smooth says otherwise.
	Positions Weight
	PreNorm   *Norm // or nil
	Layers    []Layer
	PostNorm  *Norm // or nil
	DropFirst bool
	// Cell is the edge of a cell, in rows; 1 where rows stay as they are.
	Cell int
	Projector
	// Deep, for a Grid, makes more rows of the states after earlier layers, in order. The text model adds them after its first layers.
	Deep []Deep

	// Pool above 1: rows are the means of Pool x Pool adjacent ones, before Norm, instead of cells. For a Grid it is Cell.
	Pool int
	// Gain multiplies means; 0 stands for 1. Then (x - Center) ⊙ Spread, [Hidden] each, if they have tensors.
	Gain           float64
	Center, Spread Weight
	// Scale multiplies rows; 0 stands for 1. It undoes what the text model multiplies token rows by.
	Scale float64
	// Tail, if it has a tensor, are the columns that rows have after those of the stream, for a text model with PerLayer: the row of Pad of its
	// second table.
	Tail Weight
	// Marks is the number of columns of Lookup of the text model that Embedding does not have.
	Marks int

	// Pad is the id in place of which rows are put; if it is negative, the first one that the tokenizer does not have.
	// Start and End are the words around them, empty without.
	// PadWord, if not empty, is its word, in place of an id.
	Pad                 int
	Start, End, PadWord string
	// Before and After are what the checkpoint's library writes before and after a picture in a conversation.
	Before, After string
	// Loss is what the checkpoint's library does with pictures and a package cannot, a sentence; empty if there is nothing. For a Grid it is
	// about pictures that are cut.
	Loss string
}

// Tiles is how a picture becomes several that a [Tower] reads one by one: tiles from left to right and then from top to bottom, each
// after Start and a word with its row and column, and then the whole picture in the size of a tile, between Start and Whole, and End.
type Tiles struct {
	// Whole is the word before the whole picture.
	Whole string
	// Most is the length that the library gives the longer edge of a picture, in pixels, where the repository says nothing else.
	Most int
}

// Deep makes rows of the states after a layer, before PostNorm.
type Deep struct {
	After int
	Projector
}

// Projector makes rows as wide as those of the text model of cells.
//
//	x = Front[1] · Front[0] · x
//	x = Between(Norm(x))
//	row = Out · act(In · x), or with a Gate Out · (act(Gate · x) ⊙ (In · x))
type Projector struct {
	// Planes: a cell is [Hidden, Cell, Cell], as a convolution reads it, and not [Cell, Cell, Hidden].
	Planes        bool
	Front         []Linear
	Norm          *Norm      // of what In takes, or nil
	Between       Activation // or empty
	Gate, In, Out Linear     // Gate may be without tensor; without Out, rows are In · x
	Activation    Activation
}

// weights calls f with every slot that needs a tensor.
func (p *Projector) weights(f func(Weight)) {
	for i := range p.Front {
		p.Front[i].weights(f)
	}
	p.Norm.vectors(f)
	if p.Gate.Weight.Tensor != "" {
		p.Gate.weights(f)
	}
	p.In.weights(f)
	some(f, p.Out.Weight, p.Out.Bias)
}

// PositionSide returns the edge of the square of learned positions of a Grid.
func (t *Tower) PositionSide() int {
	side := 0
	for (side+1)*(side+1) <= t.Positions.Rows {
		side++
	}
	return side
}

// Side returns the number of patches in a row of patches.
func (t *Tower) Side() int { return t.Size / t.Patch }

// States returns the number of rows within the layers.
func (t *Tower) States() int {
	n := t.Side() * t.Side()
	if t.Class.Tensor != "" {
		n++
	}
	return n
}

// Rows returns the number of rows that a picture becomes.
func (t *Tower) Rows() int {
	n := t.States()
	if t.DropFirst {
		n--
	}
	pool := max(t.Pool, 1)
	return n / (t.Cell * t.Cell * pool * pool)
}

// weights calls f with every slot that needs a tensor.
func (t *Tower) weights(f func(Weight)) {
	if t.Stages == nil {
		t.Embedding.weights(f)
	}
	for i := range t.Stages {
		t.Stages[i].weights(f)
	}
	some(f, t.Class, t.Positions, t.Places[0], t.Places[1], t.Center, t.Spread, t.Tail)
	t.PreNorm.vectors(f)
	for _, layer := range t.Layers {
		layer.weights(f)
	}
	t.PostNorm.vectors(f)
	if t.Slices != nil {
		t.Slices.weights(f)
	}
	t.Projector.weights(f)
	for i := range t.Deep {
		t.Deep[i].weights(f)
	}
}
