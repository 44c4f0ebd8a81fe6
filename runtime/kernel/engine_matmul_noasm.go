//go:build !amd64 || purego

package kernel

// tileLanes is how many rows tileRows takes at once, 0 for none.
func tileLanes() int { return 0 }

func tileRows([]float32, []float32, []float32, int) {}
