//go:build (!amd64 && !arm64) || purego

package kernel

// attentionLanes is the scratch of code that takes many queries at once.
type attentionLanes struct{}

func (*EngineAttention) attendLanes(*attentionJob) bool { return false }

func (p *tileProduct) quad(dst, x, tiles []float32, scale float32, factors, _ []float32) {
	p.generic(dst, x, tiles, scale, factors, true)
}

func (w *rowWeights) weigh(s []float32, n int) { w.weighGeneric(s, n) }

func gatherColumns(dst, src []float32, rows *[8]int, stride, dim int) {
	gatherColumnsGeneric(dst, src, rows, stride, dim)
}
