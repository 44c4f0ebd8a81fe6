package calibrate

import (
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
)

// LeastMemory is about how many bytes [Quantize] and [Measure] need, however small the limit, and with it how many a part of them
// needs: the widest branch of a layer, an expert in both streams, the backward pass of a layer, or a slab of the table.
func LeastMemory(d *arch.Decoder) int64 {
	hidden, table := int64(d.Hidden), 4*int64(d.Vocab)*int64(d.Hidden)
	// A gradient has the moments of the table, two slabs of the head, logits and what they were before they were bounded, and the
	// backward pass of a layer.
	pass := 8*hidden*hidden + 2*min(forward.LeastWeights(0), table) + 2*min(forward.LogitBytes, 4*chunkTokens*int64(d.Vocab))
	most := pass
	for _, l := range d.Layers {
		var common, expert int64
		for _, b := range l {
			n := needsOf(b.Block)
			common, expert = common+n.common, max(expert, n.expert)
			most = max(most, n.visit(hidden))
		}
		most = max(most, 8*(common+expert)+pass)
	}
	// Moments, and a slab of the table or the head three times: what is stored of it, and its codes.
	most = max(most, 16*hidden*hidden+3*min(slabBytes, table, most/slabShare))
	return most + forward.LeastWeights(1)
}

// LeastShowing is LeastMemory for a tower or an ear.
func LeastShowing(s *Showing) int64 {
	return LeastMemory(s.layers())
}

// needs are numbers of elements of a block.
type needs struct {
	common, expert          int64 // weights of all but the experts, and of the largest expert
	widest                  int64 // the most columns of a matrix
	expertMatrix, expertMax int64 // the largest matrix of an expert, and the most columns of one
	token                   int64 // activations of a token
	encoding                int64 // the most bytes for encoding a matrix of common
}

// encode adds up what encoding one of some matrices takes: four matrices of moments (both streams, their factor, the mismatch), the
// matrix and what is stored of it, its codes, errors of a run of its rows and the moments of their outputs, and as much of others, which
// may read the same vector. Nothing reads these when it is the turn of the last one, if it is that of the block.
func (n *needs) encode(list []*arch.Linear, last bool) {
	for i, l := range list {
		rows, cols := int64(l.Weight.Rows), int64(l.Weight.Cols)
		run := min(quant.CoupledRows, rows)
		bytes := 10*rows*cols + 16*cols*cols + run*(4*cols+8*run)
		if !last || i < len(list)-1 {
			bytes += 10 * (n.common - rows*cols)
		}
		n.encoding = max(n.encoding, bytes)
	}
}

// needsOf adds up a block.
func needsOf(b arch.Block) (n needs) {
	all := func(list []*arch.Linear) {
		for _, l := range list {
			n.common += int64(l.Weight.Rows) * int64(l.Weight.Cols)
			n.widest = max(n.widest, int64(l.Weight.Cols))
			n.token += int64(l.Weight.Rows)
		}
	}
	switch x := b.(type) {
	case *arch.Sum:
		for _, part := range x.Branches {
			p := needsOf(part.Block)
			n.common, n.expert = n.common+p.common, max(n.expert, p.expert)
			n.encoding, n.widest = max(n.encoding, p.encoding+4*(n.common-p.common)), max(n.widest, p.widest)
			n.expertMatrix, n.expertMax = max(n.expertMatrix, p.expertMatrix), max(n.expertMax, p.expertMax)
			n.token = max(n.token, p.token)
		}
		return n
	case *arch.Experts:
		common := []*arch.Linear{&x.Router}
		if x.Shared != nil {
			common = append(common, &x.SharedGate, &x.Shared.Gate, &x.Shared.Up, &x.Shared.Down)
		}
		all(common)
		n.encode(common, false)
		for i := range x.Experts {
			m := needsOf(&x.Experts[i])
			n.expert, n.expertMax, n.token = max(n.expert, m.common), max(n.expertMax, m.widest), max(n.token, m.token)
			for _, l := range []*arch.Linear{&x.Experts[i].Gate, &x.Experts[i].Up, &x.Experts[i].Down} {
				n.expertMatrix = max(n.expertMatrix, int64(l.Weight.Rows)*int64(l.Weight.Cols))
			}
		}
		return n
	}
	d := arch.Decoder{Layers: []arch.Layer{{{Block: b}}}}
	var list []*arch.Linear
	d.Linears(func(_ string, l *arch.Linear) {
		if l != &d.Head {
			list = append(list, l)
		}
	})
	all(list)
	n.encode(list, true)
	return n
}

// visit is the memory for gathering moments of an input and encoding a matrix that reads it, once for what is common and once for an
// expert, which is there in both streams as rows and as panels; and activations of a chunk of tokens in both streams.
func (n *needs) visit(hidden int64) int64 {
	return chunkTokens*n.activations(hidden) + max(n.encoding, n.visitExpert())
}

// activations is the memory for a token.
func (n *needs) activations(hidden int64) int64 {
	return 4 * (2*hidden + n.token + 4*hidden + 3*max(n.widest, n.expertMax))
}

func (n *needs) visitExpert() int64 {
	return 16*n.expert + 9*n.expertMatrix + 16*n.expertMax*n.expertMax
}

// expertShare is the divisor of the memory limit that bounds experts which are visited at the same time as another one.
const expertShare = 8

// expertsWithin is how many experts of a layer are visited at the same time, if so many bytes are there for all but one.
func expertsWithin(bytes int64, l arch.Layer, hidden int) int {
	most := int64(1)
	for _, b := range l {
		n := needsOf(b.Block)
		most = max(most, chunkTokens*n.activations(int64(hidden))+n.visitExpert())
	}
	return 1 + int(bytes/most)
}

// LeastSampling is about how many bytes [Sample] needs for windows of length tokens if no matrix stays in memory: keys and
// values of one window, a slab of a matrix, the buffers of all threads, and logits.
func LeastSampling(d *arch.Decoder, length, threads int) int64 {
	return forward.CacheBytes(d, length) + forward.LeastWeights(threads) + 8*int64(d.Vocab)
}
