//go:build !amd64 || purego

package kernel

func peakLoops() []PeakLoop { return nil }

func canPeakRead() bool { return false }

func peakRead([]byte) {}
