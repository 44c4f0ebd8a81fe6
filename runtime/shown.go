package runtime

// Picture is what a tower makes of a picture: Rows [Height*Width, hidden], in rows of Width.
type Picture struct {
	Rows          []float32
	Height, Width int

	taken int   // tokens that have become rows
	began int32 // position of the first one
}

// axes is the number of axes of the positions of a model that sees: time, row and column.
const axes = 3

// show puts the rows of pictures in place of embeddings, and reports whether there were any. For a model whose positions have several axes, it
// returns them as the engine counts up to 3.6.1: after a picture it goes on at the column after the last one, which is wrong for most
// pictures, and in later calls with the number of tokens. The graph counts by itself and needs only what is right.
func (s *Session) show(tokens []int32, embeddings []float32) (seen bool, positions []int32) {
	if len(s.states) != 1 || len(s.shown) == 0 {
		return false, nil
	}
	n, width := len(tokens), len(embeddings)/len(tokens)
	positions = make([]int32, axes*n)
	next := int32(s.Len())
	for i, t := range tokens {
		at := [axes]int32{next, next, next}
		if t == s.pkg.Config.ImagePad && len(s.shown) > 0 {
			seen = true
			at = s.shown[0].take(embeddings[i*width:(i+1)*width], next)
			if next = at[2]; s.shown[0].taken == s.shown[0].Height*s.shown[0].Width {
				s.shown = s.shown[1:]
			}
		}
		for axis, p := range at {
			positions[axis*n+i] = p
		}
		next++
	}
	if !seen || !s.pkg.Config.MRope {
		positions = nil
	}
	return seen, positions
}

// take copies the next row of a picture and returns its position; next is that of a token of text in its place.
func (p *Picture) take(row []float32, next int32) [axes]int32 {
	copy(row, p.Rows[p.taken*len(row):])
	if p.taken == 0 {
		p.began = next
	}
	y, x := int32(p.taken/p.Width), int32(p.taken%p.Width)
	p.taken++
	return [axes]int32{p.began, p.began + y, p.began + x}
}
