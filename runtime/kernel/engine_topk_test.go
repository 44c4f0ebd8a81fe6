package kernel

import (
	"fmt"
	"testing"
)

// TestEngineTopK holds ties against std::partial_sort of libstdc++ (GCC 12).
func TestEngineTopK(t *testing.T) {
	for _, c := range []struct {
		row  []float32
		want []int32
	}{
		{[]float32{1, 0, 2, 1, 4, 0, 0, 3, 3, 0, 1, 4, 0, 0, 4, 2, 0}, []int32{4, 11, 14, 7, 8, 15, 2, 3, 10, 0}},
		{[]float32{3, 0, 2, 1, 3, 4, 4, 0, 0, 4, 1, 3, 1, 1, 2, 2, 3, 1}, []int32{5, 6, 9, 0, 4, 16, 11, 14, 15, 2, 3, 10, 12, 13}},
		{[]float32{0, 3, 3, 2, 0, 0, 3, 2, 1, 4, 2, 3, 2, 1, 1, 2, 0, 2, 2, 0, 2, 0, 2, 3, 3, 1, 1, 4, 1, 3},
			[]int32{27, 9, 24, 23, 1, 11, 2, 29, 6, 7, 17, 18, 15, 3, 20, 10, 12, 22, 26, 25, 8, 13}},
		{[]float32{2, 7, 7, 7}, []int32{1}},
		{[]float32{5}, []int32{0}},
	} {
		got := make([]int32, len(c.want))
		EngineTopK(got, c.row, nil)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("the largest %d of %v are %v, want %v", len(got), c.row, got, c.want)
		}
	}
}
