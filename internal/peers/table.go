package main

import (
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/bench"
)

// table collects what programs measured.
type table struct {
	programs []program
	threads  []int
	// samples by test, number of threads and program, in tokens a second.
	prefill, decode map[int][][]float64
}

func newTable(programs []program, threads []int) *table {
	t := &table{programs, threads, map[int][][]float64{}, map[int][][]float64{}}
	for _, n := range threads {
		t.prefill[n], t.decode[n] = make([][]float64, len(programs)), make([][]float64, len(programs))
	}
	return t
}

func (t *table) add(program, threads int, s speed) {
	t.prefill[threads][program] = append(t.prefill[threads][program], s.prefill)
	t.decode[threads][program] = append(t.decode[threads][program], s.decode)
}

// markdown has a row for each test and number of threads, and a column for each program: median, and least to most. The
// last column compares the first program with the better of the others.
func (t *table) markdown() string {
	var b strings.Builder
	b.WriteString("| test, tokens/s | threads |")
	for _, p := range t.programs {
		fmt.Fprintf(&b, " %s |", p.name)
	}
	compared := len(t.programs) > 1 && t.programs[0].name == "llmexport"
	if compared {
		b.WriteString(" ratio |")
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", strings.Count(b.String(), "|")-2) + "\n")
	for _, test := range []struct {
		name    string
		samples map[int][][]float64
	}{{fmt.Sprintf("prefill %d", prompt), t.prefill}, {fmt.Sprintf("decode %d behind %d", decode, prompt), t.decode}} {
		for _, n := range t.threads {
			fmt.Fprintf(&b, "| %s | %d |", test.name, n)
			var best, first float64
			for i, samples := range test.samples[n] {
				s := bench.SpreadOf(samples)
				fmt.Fprintf(&b, " %.1f (%.1f to %.1f) |", s.Median, s.Min, s.Max)
				if i == 0 {
					first = s.Median
				} else {
					best = max(best, s.Median)
				}
			}
			if compared {
				fmt.Fprintf(&b, " %.2f |", first/best)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
