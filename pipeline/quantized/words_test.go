package quantized

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// TestLines: the fast way to read whole lines agrees with the definition, for every width of codes, length of lines and
// part of a matrix, also where a line does not end with a word.
func TestLines(t *testing.T) {
	const words32 = 24
	raw := make([]byte, 4*words32*words32)
	seed := uint32(7)
	for i := range raw {
		seed = seed*1664525 + 1013904223
		raw[i] = byte(seed >> 24)
	}
	for _, o := range []order{dense, padded, interleaved} {
		for _, a := range []axis{down, across} {
			for _, bits := range []int{2, 3, 4, 5, 6, 8} {
				if o != dense && a == down || o == interleaved && bits != 4 {
					continue
				}
				t.Run(fmt.Sprint(o, a, bits), func(t *testing.T) {
					w := &words{data: bytes.NewReader(raw), rows: words32, cols: words32, bits: bits, axis: a, order: o}
					most, lines := words32*32/bits, words32
					switch o {
					case padded:
						most = words32 * (32 / bits)
					case interleaved:
						most, lines = words32, words32*8
					}
					for _, n := range []int{1, 7, 8, 9, 31, 32, 33, most - 1, most} {
						n = min(n, most)
						for _, part := range [][2]int{{0, lines}, {0, 1}, {3, 5}, {lines - 1, lines}} {
							lo, hi := part[0], part[1]
							got, want := make([]uint8, (hi-lo)*n), make([]uint8, (hi-lo)*n)
							var err error
							if a == down || o == interleaved {
								err = w.read(want, 0, n, lo, hi, 1, n)
							} else {
								err = w.read(want, lo, hi, 0, n, n, 1)
							}
							if err != nil {
								t.Fatal(err)
							}
							if o == dense && a == down && o.need(n, bits) < words32 {
								w := *w
								w.rows = o.need(n, bits)
								err = w.lines(got, lo, hi, n)
							} else {
								err = w.lines(got, lo, hi, n)
							}
							if err != nil || !slices.Equal(got, want) {
								t.Fatalf("lines %d to %d of %d: %v\n%v\n%v", lo, hi, n, err, got, want)
							}
						}
					}
				})
			}
		}
	}
}
