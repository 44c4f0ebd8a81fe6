package report

import (
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/figure"
)

// Picture returns the picture of a model card, an SVG file: the bits of weights and the divergence over positions; nil if the
// report has neither.
func Picture(r *about.Report) []byte {
	var list []*figure.Figure
	for _, s := range []section{bits(r), positions(r)} {
		if s.Figure != nil {
			list = append(list, s.Figure)
		}
	}
	if list == nil {
		return nil
	}
	return figure.Join("The package "+r.Name, list...).File()
}
