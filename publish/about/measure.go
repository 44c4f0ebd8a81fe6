package about

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Outcome is the result of comparing a measure with its limit; empty if it has none.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Measure is one row of a table: a check or a measurement.
type Measure struct {
	Name string `json:"name"`
	// Value is nil for a check without a number; Unit is printed after it.
	Value *float64 `json:"value,omitempty"`
	Unit  string   `json:"unit,omitempty"`
	// StdErr is the standard error of Value, 0 if unknown.
	StdErr float64 `json:"std_err,omitempty"`
	// Limit is the limit of Value as it is printed, for example "<= 1.05".
	Limit   string  `json:"limit,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	// Detail explains a check that failed or was skipped, in a sentence.
	Detail string `json:"detail,omitempty"`
}

// number formats a measured number to three digits, and 0 as "".
func number(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// SpecSummary counts the tensors stored in one format.
type SpecSummary struct {
	Spec string `json:"spec"`
	// Tensors counts stored spans and Bytes their bytes; a span shared by several ops counts once.
	Tensors int   `json:"tensors"`
	Bytes   int64 `json:"bytes"`
}

// Specs summarizes the tensors of a manifest by spec, the largest first.
func Specs(tensors []manifest.Tensor) []SpecSummary {
	type span struct {
		file         string
		offset, size int64
	}
	seen := map[span]bool{}
	var specs []SpecSummary
	for _, t := range tensors {
		s := span{t.File, t.Offset, t.Size}
		if seen[s] {
			continue
		}
		seen[s] = true
		i := slices.IndexFunc(specs, func(s SpecSummary) bool { return s.Spec == t.Spec })
		if i < 0 {
			i = len(specs)
			specs = append(specs, SpecSummary{Spec: t.Spec})
		}
		specs[i].Tensors++
		specs[i].Bytes += t.Size
	}
	slices.SortFunc(specs, func(a, b SpecSummary) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Spec, b.Spec))
	})
	return specs
}
