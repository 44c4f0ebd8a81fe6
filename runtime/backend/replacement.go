package backend

// Replacement are floats that are read when they are needed.
type Replacement struct {
	// Len is their number.
	Len int
	// Read fills dst with those from the given one on.
	Read func(dst []float32, from int) error
}

// All reads all floats.
func (r *Replacement) All() ([]float32, error) {
	v := make([]float32, r.Len)
	return v, r.Read(v, 0)
}
