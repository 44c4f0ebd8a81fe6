package kernel

// PeakLoop is a loop of one instruction that touches no memory: the fastest that a core can compute. The instruction is
// one that the tier in use has.
type PeakLoop struct {
	// Kind of numbers: "fp32", "int8" or "bf16".
	Kind string
	// Instruction is its name and the registers that it runs on, for example "VPDPBUSD zmm".
	Instruction string
	// Operations of one call of Run: two for every product that is added to a sum.
	Operations float64
	// Run computes for some ten microseconds, as a call of assembly cannot be interrupted.
	Run func()
}

// PeakLoops lists the loops of the tier in use, the widest instruction for each kind of numbers. There are none without
// assembly.
func PeakLoops() []PeakLoop { return peakLoops() }

// PeakReadBlock is the least that PeakRead reads, in bytes.
const PeakReadBlock = 512

// peakReadCall is the number of bytes that one call of assembly reads.
const peakReadCall = 256 << 10

// PeakRead loads the whole blocks of b and discards them. Without assembly it does nothing and returns false.
func PeakRead(b []byte) bool {
	if !canPeakRead() {
		return false
	}
	for b = b[:len(b)/PeakReadBlock*PeakReadBlock]; len(b) > 0; {
		n := min(len(b), peakReadCall)
		peakRead(b[:n])
		b = b[n:]
	}
	return true
}
