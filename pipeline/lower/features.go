package lower

import "github.com/llmexport/llmexport/backends"

// features are those of the graph in which backends differ, and the precision that it needs.
func (b *builder) features() backends.Features {
	f := backends.FeaturesOf(b.g)
	f.Needs = b.precision
	return f
}
