package kernel

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// TestDigests holds the bits of what computes in float64, which reports hold, for every tier and architecture.
func TestDigests(t *testing.T) {
	const n = 1003
	x, y, gamma := engineValues(1, 3*n, 12), engineValues(2, 3*n, 9), engineValues(3, n, 1)
	forEachImpl(t, func(t *testing.T) {
		dst, sum := make([]float32, 3*n), make([]float32, 3*n)
		for _, c := range []struct {
			name string
			f    func() []float64
			want uint32
		}{
			{"norm", func() []float64 { Add(sum, x, y); RMSNormRows(dst, sum, gamma, 3, 1e-6); return nil }, 0x62ecf243},
			{"softmax", func() []float64 { copy(dst, x); Softmax(dst); return nil }, 0x201569f9},
			{"silu", func() []float64 { SiLU(dst, x); return nil }, 0x96eb8869},
			{"sums", func() []float64 {
				clear(dst)
				var out []float64
				for i := range 3 {
					p, q := x[i*n:(i+1)*n], y[i*n:(i+1)*n]
					np, nq := LogSumExp(p), LogSumExp(q)
					out = append(out, np, nq, KL(p, q, np, nq), KL(q, p, nq, np), SumExp(p, 12, 0.3))
				}
				return out
			}, 0x01a34c97},
		} {
			sums := c.f()
			b, err := binary.Append(nil, binary.LittleEndian, dst)
			if err == nil {
				b, err = binary.Append(b, binary.LittleEndian, sums)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := crc32.ChecksumIEEE(b); got != c.want {
				t.Errorf("%s: %#08x, want %#08x", c.name, got, c.want)
			}
		}
	})
}
