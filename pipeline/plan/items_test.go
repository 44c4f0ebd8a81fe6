package plan

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/quant"
)

// Items that are written out of order, in several calls, make the file that is written in one piece.
func TestItemsApart(t *testing.T) {
	p, src := smallModel(t)
	want := written(t, p, src, WriteOptions{Threads: 2, Memory: 1 << 26})
	var odd, even []int
	for i := range p.Items {
		if i%2 == 0 {
			even = append(even, i)
		} else {
			odd = append(odd, i)
		}
	}
	for _, groups := range [][][]int{{odd, even}, {even, odd}, {{len(p.Items) - 1}, even[:1], odd, even[1:]}} {
		f, err := os.Create(filepath.Join(t.TempDir(), "weights"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sums, shares := map[int]string{}, map[int]float64{}
		var compared atomic.Int64 // weights
		for _, items := range groups {
			items = slices.DeleteFunc(slices.Clone(items), func(i int) bool { return sums[i] != "" })
			var bytesDone, size int64
			for _, i := range items {
				size += p.Items[i].Size()
			}
			o := WriteOptions{Quantizer: quant.RTN{}, Threads: 3, Memory: 1 << 24, Items: items,
				Compare: func(it *Item, codes, alpha []byte, rows []float32) (float64, error) {
					compared.Add(int64(len(rows)))
					return float64(len(codes)), nil
				},
				Compared: func(i int, share float64) { shares[i] = share },
				Done:     func(i int, sum string) error { sums[i] = sum; return nil },
				Progress: func(n int64) { bytesDone = n },
			}
			sum, err := p.Write(t.Context(), f, src, o)
			if err != nil || sum != "" {
				t.Fatal(sum, err)
			}
			if bytesDone != size {
				t.Errorf("progress ended at %d of %d", bytesDone, size)
			}
		}
		got, err := os.ReadFile(f.Name())
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("other bytes, %v", err)
		}
		all := int64(0)
		for i := range p.Items {
			it := &p.Items[i]
			if sums[i] != sumOf(want[it.Offset:it.Offset+it.Size()]) {
				t.Errorf("item %d: digest %s", i, sums[i])
			}
			all += int64(it.Slot.Weight.Rows * max(it.Slot.Weight.Cols, 1))
			if shares[i] == 0 {
				t.Errorf("item %d: no share", i)
			}
		}
		if n := compared.Load(); n != all {
			t.Errorf("%d of %d weights were compared", n, all)
		}
	}
}

// What the comparison says ends the writing, with the name of the tensor.
func TestCompareFails(t *testing.T) {
	p, src := smallModel(t)
	o := WriteOptions{Quantizer: quant.RTN{}, Threads: 2, Memory: 1 << 24}
	o.Compare = func(*Item, []byte, []byte, []float32) (float64, error) { return 0, os.ErrInvalid }
	o.Compared = func(int, float64) {}
	var b bytes.Buffer
	if _, err := p.Write(t.Context(), &b, src, o); !errors.Is(err, os.ErrInvalid) || !strings.Contains(err.Error(), p.Items[0].Slot.Weight.Tensor) {
		t.Error(err)
	}
}

func BenchmarkWrite(b *testing.B) {
	p, src := smallModel(b)
	weights := int64(0)
	for i := range p.Items {
		weights += int64(p.Items[i].Slot.Weight.Rows) * int64(max(p.Items[i].Slot.Weight.Cols, 1))
	}
	b.SetBytes(2 * weights)
	for b.Loop() {
		if _, err := p.Write(b.Context(), discard{}, src, WriteOptions{Quantizer: quant.RTN{}, Threads: 2, Memory: 1 << 28}); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
