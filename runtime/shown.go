package runtime

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
)

// Picture is what a tower makes of a picture: Rows [Height*Width, hidden], in rows of Width; or what an [Ear] makes of a clip, of Height 1.
// Where the text model adds more to rows after its first layers, it follows each row.
type Picture struct {
	Rows          []float32
	Height, Width int

	clip  bool
	key   pictureKey
	taken int   // tokens that have become rows
	began int32 // position of the first one
}

// pictureKey tells pictures apart: the SHA-256 of their shape and rows.
type pictureKey [sha256.Size]byte

// newPicture returns the picture of height x width rows.
func newPicture(rows []float32, height, width int) Picture {
	h := sha256.New()
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(height)), uint64(width))
	for piece := range slices.Chunk(rows, 1<<12) {
		for _, v := range piece {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		h.Write(b)
		b = b[:0]
	}
	return Picture{Rows: rows, Height: height, Width: width, key: pictureKey(h.Sum(nil))}
}

// newClip returns the clip of these rows.
func newClip(rows []float32, n int) Picture {
	p := newPicture(rows, 1, n)
	p.clip = true
	return p
}

// tokens is the number of tokens that become rows of the picture.
func (p *Picture) tokens() int { return p.Height * p.Width }

// axes is the number of axes of the positions of a model that sees: time, row and column.
const axes = 3

// show puts the rows of pictures in place of embeddings. For a model whose positions have several axes, it returns them, if there were any, as the
// engine counts up to 3.6.1: after a picture it goes on at the column after the last one, which is wrong for most
// pictures, and in later calls with the number of tokens. The graph counts by itself and needs only what is right. deep is what
// the graph adds after its first layers, [layers, tokens, hidden], or nil.
func (s *Session) show(tokens []int32, embeddings []float32) (positions []int32, deep []float32) {
	if len(s.states) != 1 || len(s.shown) == 0 {
		return nil, nil
	}
	n, width := len(tokens), len(embeddings)/len(tokens)
	positions, seen := make([]int32, axes*n), false
	next := int32(s.Len())
	for i, t := range tokens {
		at := [axes]int32{next, next, next}
		if len(s.shown) > 0 && t == s.pkg.Config.pad(&s.shown[0]) {
			seen = true
			if s.shown[0].taken == 0 {
				s.seen = append(s.seen, s.shown[0].key)
			}
			if more := s.shown[0].deep(width); len(more) > 0 {
				if deep == nil {
					deep = make([]float32, len(more)*n)
				}
				for layer := range len(more) / width {
					copy(deep[(layer*n+i)*width:(layer*n+i+1)*width], more[layer*width:])
				}
			}
			at = s.shown[0].take(embeddings[i*width:(i+1)*width], next)
			if next = at[2]; s.shown[0].taken == s.shown[0].tokens() {
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
	return positions, deep
}

// wide is the number of values of a row and of what follows it.
func (p *Picture) wide() int { return len(p.Rows) / p.tokens() }

// deep is what follows the next row of so many elements.
func (p *Picture) deep(width int) []float32 {
	return p.Rows[p.taken*p.wide()+width : (p.taken+1)*p.wide()]
}

// take copies the next row of a picture and returns its position; next is that of a token of text in its place.
func (p *Picture) take(row []float32, next int32) [axes]int32 {
	copy(row, p.Rows[p.taken*p.wide():])
	if p.taken == 0 {
		p.began = next
	}
	y, x := int32(p.taken/p.Width), int32(p.taken%p.Width)
	p.taken++
	if p.clip { // counts like text
		return [axes]int32{next, next, next}
	}
	return [axes]int32{p.began, p.began + y, p.began + x}
}

// piece returns how many of tokens the next turn takes: as many as the turns want, and more where they would divide a picture: its rows may
// attend to each other, and the graph of a model whose positions have several axes counts them together.
func (s *Session) piece(tokens []int32) int {
	n := s.Turns.piece()
	if len(s.shown) == 0 {
		return n
	}
	shown, left := s.shown, 0
	for i, t := range tokens {
		if left == 0 && i >= n && (i-n)%pieceGroup == 0 {
			return i
		}
		if left == 0 && len(shown) > 0 && t == s.pkg.Config.pad(&shown[0]) {
			left, shown = shown[0].tokens()-shown[0].taken, shown[1:]
		}
		if left > 0 && s.pkg.Config.pads(t) {
			left--
		}
	}
	return len(tokens)
}
