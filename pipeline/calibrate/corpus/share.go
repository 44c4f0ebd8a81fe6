package corpus

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// shares splits n by weight: whole parts first, what is left to the largest remainders, the earlier first. A weight
// of 0 gets nothing.
func shares(weights []float64, n int) []int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	parts := make([]int, len(weights))
	rest := make([]float64, len(weights))
	order := make([]int, 0, len(weights))
	left := n
	for i, w := range weights {
		if w == 0 {
			continue
		}
		exact := float64(float64(n)*w) / sum
		parts[i] = int(exact)
		rest[i] = exact - float64(parts[i])
		left -= parts[i]
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for k := 0; k < left && len(order) > 0; k++ {
		parts[order[k%len(order)]]++
	}
	return parts
}

// below is a number from 0 to n-1, the same on every machine.
func below(p *rand.PCG, n int) int {
	hi, _ := bits.Mul64(p.Uint64(), uint64(n))
	return int(hi)
}

// spread takes n of all, evenly, beginning at an offset of p. n is at most len(all).
func spread[T any](all []T, n int, p *rand.PCG) []T {
	if n == 0 {
		return nil
	}
	offset := below(p, len(all))
	chosen := make([]T, n)
	for k := range chosen {
		hi, lo := bits.Mul64(uint64(k), uint64(len(all)))
		lo, carry := bits.Add64(lo, uint64(offset), 0)
		q, _ := bits.Div64(hi+carry, lo, uint64(n))
		chosen[k] = all[q]
	}
	return chosen
}
