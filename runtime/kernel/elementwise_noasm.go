//go:build (!amd64 && !arm64) || purego

package kernel

func add(dst, x, y []float32) { addGeneric(dst, x, y) }

func mul(dst, x, y []float32) { mulGeneric(dst, x, y) }

func scale(dst, x []float32, factor float32) { scaleGeneric(dst, x, factor) }

func peaks(x []float32) (top float32, size uint32) { return peaksGeneric(x) }

func atLeast(x []float32, limit float32) int { return atLeastGeneric(x, limit) }

func nonFinite(x []float32) int { return nonFiniteGeneric(x) }
