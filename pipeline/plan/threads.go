package plan

import "github.com/llmexport/llmexport/pipeline/lower"

// PackWidths are the channel pack widths of the engine's builds: 16 with AVX-512, 8 with AVX2 and ARM
// fp16, 4 with NEON fp32.
var PackWidths = []int{4, 8, 16}

// MaxThreads is the largest thread count that UnsafeThreads considers.
const MaxThreads = 64

// UnsafeThreads lists, for a pack width, the thread counts up to MaxThreads at which the engine may read
// stale memory as an activation scale, in int8 mode with dynamic_option 0 and more than 255 positions in a
// call. With LU = ceil(cols/pack) packs, the engine's BatchSymDynamicQuant gives each of T threads
// ceil(LU/T) packs; when fewer than T threads get any, the maxima of the others are never written, and all T
// are read. 16-bit layers are not affected. Towers have threads of their own, see [Plan.UnsafeTowerThreads].
func (p *Plan) UnsafeThreads(pack int) []int { return p.unsafeThreads(pack, false) }

// UnsafeTowerThreads is UnsafeThreads for towers.
func (p *Plan) UnsafeTowerThreads(pack int) []int { return p.unsafeThreads(pack, true) }

func (p *Plan) unsafeThreads(pack int, towers bool) []int {
	inputs := map[int]bool{} // distinct numbers of columns: a few
	for it := range p.Items() {
		if it.Slot.Kind == lower.LinearSlot && it.Slot.Tower == towers && it.Choice.Spec.Bits != 16 {
			inputs[it.Layout.Cols] = true
		}
	}
	var list []int
	for t := 1; t <= MaxThreads; t++ {
		for cols := range inputs {
			if UnsafeThreads(cols, pack, t) {
				list = append(list, t)
				break
			}
		}
	}
	return list
}

// UnsafeThreads reports whether a linear layer of cols inputs is affected at t threads.
func UnsafeThreads(cols, pack, t int) bool {
	lu := ceil(cols, pack)
	return lu > t && ceil(lu, ceil(lu, t)) < t
}

func ceil(a, b int) int { return (a + b - 1) / b }
