package quant

// Site is a place of a model where channels can be scaled without changing what the model computes: whatever makes a
// vector is divided, channel by channel, by what the matrices that read it are multiplied with.
type Site struct {
	// Name is for reports, for example "layers.3.mlp.down".
	Name string
	// Channels is the number of independent scales. The channel of column j of the consumers is Of[j], or j if Of is
	// nil: the columns of o_proj that belong to the query heads of one key-value head share the scales of that head.
	Channels int
	Of       []int
	// Consumers read the vector: matrices [rows, cols] whose columns are multiplied. They are copies that a Folder
	// must not change.
	Consumers []Matrix
	// Specs says how each consumer will be stored.
	Specs []Spec
	// Stats are those of the vector, taken from the float model.
	Stats *Stats
}

// Column is the scale of column j.
func (s *Site) Column(scale []float32, j int) float32 {
	if s.Of != nil {
		j = s.Of[j]
	}
	return scale[j]
}
