//go:build !purego

package kernel

const (
	// peakUnroll is the constant of that name in _asm/peak.go.
	peakUnroll = 24
	// peakTurns makes a call take about 12 microseconds at two instructions a cycle and 4 GHz.
	peakTurns = 4096
)

// peakLoop is a loop whose instruction multiplies products pairs of numbers.
func peakLoop(kind, instruction string, products int, loop func(turns int)) PeakLoop {
	return PeakLoop{kind, instruction, 2 * float64(products) * peakUnroll * peakTurns, func() { loop(peakTurns) }}
}

func peakLoops() []PeakLoop {
	var loops []PeakLoop
	switch {
	case use.avx512:
		loops = append(loops, peakLoop("fp32", "VFMADD231PS zmm", 16, peakFMAAVX512))
	case use.avx2:
		loops = append(loops, peakLoop("fp32", "VFMADD231PS ymm", 8, peakFMAAVX2))
	}
	switch {
	case use.vnni:
		loops = append(loops, peakLoop("int8", "VPDPBUSD zmm", 64, peakDPBUSDAVX512))
	case use.avxvnni:
		loops = append(loops, peakLoop("int8", "VPDPBUSD ymm", 32, peakDPBUSDAVXVNNI))
	case use.avx2: // the additions that widen its sums come on top
		loops = append(loops, peakLoop("int8", "VPMADDUBSW ymm", 32, peakMADDUBSAVX2))
	}
	if use.bf16 {
		loops = append(loops, peakLoop("bf16", "VDPBF16PS zmm", 32, peakDPBF16AVX512))
	}
	return loops
}

func canPeakRead() bool { return use.avx2 }

func peakRead(b []byte) { peakReadAVX2(&b[0], len(b)/PeakReadBlock) }
