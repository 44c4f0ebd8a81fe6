package verify

import (
	"context"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// coverage: every tensor of the checkpoint is in the package, or is left out for a stated reason.
type coverage struct{}

func (coverage) String() string { return "coverage" }

func (coverage) Hint(map[string]float64) string { return ours }

// namesOnly marks a check of names, which needs no intact weights.
func (coverage) namesOnly() {}

func (coverage) Check(_ context.Context, s *Subject) (Finding, error) {
	if reason, ok := s.comparable(); !ok {
		return skip("%s", reason)
	}
	stored := map[string]bool{}
	for _, t := range s.Manifest.Tensors {
		// A matrix and its bias share a span, whose name joins theirs.
		for _, n := range strings.Split(t.Name, BiasSeparator) {
			stored[n] = true
		}
	}
	// A tensor that the model reads in other forms is in the package if all of them are.
	forms := map[string][]string{}
	for view, parts := range s.Source.Model.Views {
		for _, of := range parts {
			forms[of] = append(forms[of], view)
		}
	}
	var missing []string
	left, all := 0, slices.DeleteFunc(slices.Clone(s.Source.Tensors.Tensors()), func(t tensor.Info) bool {
		_, view := s.Source.Model.Views[t.Name]
		return view
	})
	for _, t := range all {
		reason, claimed := s.Source.Model.Claimed[t.Name]
		whole := len(forms[t.Name]) > 0 && !slices.ContainsFunc(forms[t.Name], func(n string) bool { return !stored[n] })
		switch {
		case stored[t.Name], whole:
		case claimed && reason != "weight":
			left++
		default:
			missing = append(missing, t.Name)
		}
	}
	slices.Sort(missing)
	value := map[string]float64{"stored": float64(len(all) - left - len(missing)), "left_out": float64(left), "tensors": float64(len(all))}
	if len(missing) > 0 {
		return fail(value, "not in the package: %s", shorten(missing))
	}
	return pass(value, "%d of %d tensors of the source are in the package, %d left out as duplicates or buffers", len(all)-left, len(all), left)
}

// BiasSeparator joins the names of a matrix and its bias in a manifest, because they share a span.
const BiasSeparator = "+"

// shorten lists at most ten names.
func shorten(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}
