package calibrate

import (
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
)

// LeastMemory is about how many bytes [Quantize] and [Measure] need, however small the limit: the widest layer as rows and as
// panels, four matrices of moments of its widest input (both streams, their factor, the order of columns), three copies of the
// matrix being encoded, the head and a tile of logits, and the activations of a chunk of tokens.
func LeastMemory(d *arch.Decoder) int64 {
	perLayer := map[string]int64{}
	var widest, matrix, all int64
	d.Linears(func(name string, l *arch.Linear) {
		if l == &d.Head {
			return
		}
		n, parts := int64(l.Weight.Rows)*int64(l.Weight.Cols), strings.SplitN(name, ".", 3)
		perLayer[parts[0]+"."+parts[1]] += n
		widest, matrix = max(widest, int64(l.Weight.Cols)), max(matrix, n)
	})
	for _, n := range perLayer {
		all = max(all, n)
	}
	head := int64(d.Vocab) * int64(d.Hidden)
	logits := min(forward.LogitBytes, 4*chunkTokens*int64(d.Vocab))
	return 8*max(all, head) + 8*head + logits + 16*widest*widest + 12*matrix + 4*chunkTokens*(4*int64(d.Hidden)+3*widest)
}

// LeastSampling is about how many bytes [Sample] needs for windows of length tokens if no matrix stays in memory: keys and
// values of one window, a slab of a matrix, the buffers of all threads, and logits.
func LeastSampling(d *arch.Decoder, length, threads int) int64 {
	return forward.CacheBytes(d, length) + forward.LeastWeights(threads) + 8*int64(d.Vocab)
}
