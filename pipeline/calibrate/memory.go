package calibrate

import (
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
)

// LeastMemory is about how many bytes [Quantize] and [Measure] need, however small the limit, and with it how many a part of them
// needs: the widest branch of a layer, an expert in both streams, the backward pass of a layer, or the head.
func LeastMemory(d *arch.Decoder) int64 {
	head, hidden := int64(d.Vocab)*int64(d.Hidden), int64(d.Hidden)
	logits := min(forward.LogitBytes, 4*chunkTokens*int64(d.Vocab))
	// The table or the head with its codes; a gradient has the head, the moments of the table and the backward pass of a layer.
	most := max(16*head+16*hidden*hidden, 16*head+logits)
	for _, l := range d.Layers {
		var common, expert int64
		for _, b := range l {
			n := needsOf(b.Block)
			common, expert = common+n.common, max(expert, n.expert)
			most = max(most, n.visit(hidden))
		}
		most = max(most, 8*(common+expert)+8*head+logits+8*hidden*hidden)
	}
	return most + forward.LeastWeights(1)
}

// LeastShowing is LeastMemory for a tower or an ear.
func LeastShowing(s *Showing) int64 {
	return LeastMemory(s.layers())
}

// needs are numbers of elements of a block.
type needs struct {
	common, expert          int64 // weights of all but the experts, and of the largest expert
	matrix, widest          int64 // the largest matrix, and the most columns of one
	expertMatrix, expertMax int64 // those of an expert
	token                   int64 // activations of a token
}

// needsOf adds up a block.
func needsOf(b arch.Block) (n needs) {
	all := func(list ...*arch.Linear) (weights, matrix, widest int64) {
		for _, l := range list {
			m := int64(l.Weight.Rows) * int64(l.Weight.Cols)
			weights, matrix, widest = weights+m, max(matrix, m), max(widest, int64(l.Weight.Cols))
			n.token += int64(l.Weight.Rows)
		}
		return weights, matrix, widest
	}
	switch x := b.(type) {
	case *arch.Sum:
		for _, part := range x.Branches {
			p := needsOf(part.Block)
			n.common, n.expert = n.common+p.common, max(n.expert, p.expert)
			n.matrix, n.widest = max(n.matrix, p.matrix), max(n.widest, p.widest)
			n.expertMatrix, n.expertMax = max(n.expertMatrix, p.expertMatrix), max(n.expertMax, p.expertMax)
			n.token = max(n.token, p.token)
		}
		return n
	case *arch.Experts:
		common := []*arch.Linear{&x.Router}
		if x.Shared != nil {
			common = append(common, &x.SharedGate, &x.Shared.Gate, &x.Shared.Up, &x.Shared.Down)
		}
		n.common, n.matrix, n.widest = all(common...)
		for i := range x.Experts {
			m := needsOf(&x.Experts[i])
			n.expert, n.expertMatrix, n.expertMax = max(n.expert, m.common), max(n.expertMatrix, m.matrix), max(n.expertMax, m.widest)
			n.token = max(n.token, m.token)
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
	n.common, n.matrix, n.widest = all(list...)
	return n
}

// visit is the memory for gathering moments of the widest input and encoding the largest matrix that reads it, once for what is
// common and once for an expert: four matrices of moments (both streams, their factor, the mismatch), the matrix and what is
// stored of it, its codes, errors of a run of its rows and the moments of their outputs, the rest of the branch as panels, or an
// expert in both streams as rows and as panels; and activations of a chunk of tokens in both streams.
func (n *needs) visit(hidden int64) int64 {
	tokens := 4 * chunkTokens * (2*hidden + n.token + 4*hidden + 3*max(n.widest, n.expertMax))
	run := min(quant.CoupledRows, n.matrix/max(n.widest, 1)+1)
	common := 4*(n.common-n.matrix) + 10*n.matrix + 16*n.widest*n.widest + run*(4*n.widest+8*run)
	return tokens + max(common, 16*n.expert+9*n.expertMatrix+16*n.expertMax*n.expertMax)
}

// LeastSampling is about how many bytes [Sample] needs for windows of length tokens if no matrix stays in memory: keys and
// values of one window, a slab of a matrix, the buffers of all threads, and logits.
func LeastSampling(d *arch.Decoder, length, threads int) int64 {
	return forward.CacheBytes(d, length) + forward.LeastWeights(threads) + 8*int64(d.Vocab)
}
