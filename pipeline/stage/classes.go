package stage

import (
	"cmp"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// mostClasses is how many classes the experts of a layer are divided into. With four, the divergences of two experts of a class
// that spread over a factor of 256 differ by a factor of 4, which is one bit.
const mostClasses = 4

// classes combines experts of a layer that matter about as much into items that share a storage form, gate and up in one and down
// in another: thousands of experts would be as many items, and few of them would be stored alike.
func classes(d *arch.Decoder, items []quant.Item) []quant.Item {
	at := map[string]int{} // places by the name of the first member
	for i, it := range items {
		at[it.Members[0]] = i
	}
	gone := make([]bool, len(items))
	combine := func(experts [][]*arch.Linear) {
		var units []quant.Item
		for _, linears := range experts {
			var parts []quant.Item
			for _, l := range linears {
				if i, ok := at[l.Weight.Tensor]; ok {
					parts, gone[i] = append(parts, items[i]), true
				}
			}
			if len(parts) > 0 {
				units = append(units, quant.Fuse(parts...))
			}
		}
		for _, class := range divide(units) {
			items, gone = append(items, quant.Fuse(class...)), append(gone, false)
		}
	}
	for _, l := range d.Layers {
		for _, e := range mixtures(l) {
			var wide, down [][]*arch.Linear
			for j := range e.Experts {
				wide = append(wide, []*arch.Linear{&e.Experts[j].Gate, &e.Experts[j].Up})
				down = append(down, []*arch.Linear{&e.Experts[j].Down})
			}
			combine(wide)
			combine(down)
		}
	}
	var list []quant.Item
	for i, it := range items {
		if !gone[i] {
			list = append(list, it)
		}
	}
	return list
}

// mixtures are the blocks of a layer that consist of experts.
func mixtures(l arch.Layer) (all []*arch.Experts) {
	for b := range l.Blocks() {
		if x, ok := b.(*arch.Experts); ok {
			all = append(all, x)
		}
	}
	return all
}

// divide divides items into at most mostClasses classes, so that the sum of the squared distances of the logarithms of their
// largest divergences from the means of the classes is the least.
func divide(items []quant.Item) (classes [][]quant.Item) {
	size := func(it quant.Item) (most float64) {
		for _, o := range it.Options {
			most = max(most, o.KL)
		}
		return most
	}
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b quant.Item) int { return cmp.Compare(size(a), size(b)) })
	n := len(items)
	sums, squares := make([]float64, n+1), make([]float64, n+1)
	for i, it := range items {
		v := kernel.Log(max(size(it), 1e-12))
		sums[i+1], squares[i+1] = sums[i]+v, squares[i]+float64(v*v)
	}
	spread := func(from, to int) float64 { // of the items from, to excluded
		sum := sums[to] - sums[from]
		return squares[to] - squares[from] - float64(sum*sum)/float64(to-from)
	}
	// best[k][to] is the least sum for the first to items in k+1 classes, cut[k][to] the first item of the last of them.
	count := min(mostClasses, n)
	best, cut := make([][]float64, count), make([][]int, count)
	for k := range count {
		best[k], cut[k] = make([]float64, n+1), make([]int, n+1)
		for to := k + 1; to <= n; to++ {
			if k == 0 {
				best[k][to] = spread(0, to)
				continue
			}
			best[k][to], cut[k][to] = best[k-1][to-1], to-1
			for from := k; from < to-1; from++ {
				if sum := best[k-1][from] + spread(from, to); sum < best[k][to] {
					best[k][to], cut[k][to] = sum, from
				}
			}
		}
	}
	for k, to := count-1, n; k >= 0; k-- {
		from := cut[k][to]
		classes = append(classes, items[from:to])
		to = from
	}
	slices.Reverse(classes)
	return classes
}
