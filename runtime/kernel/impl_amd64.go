//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// rotateGroup divides half the rotated elements of a head where assembly turns them.
const rotateGroup = 8

// supported reads what CPU and operating system offer.
func supported() switches {
	x := &cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA && x.HasF16C
	avx512 := avx2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL
	return switches{
		avx2: avx2, avxvnni: avx2 && x.HasAVXVNNI,
		avx512: avx512, vnni: avx512 && x.HasAVX512VNNI, bf16: avx512 && x.HasAVX512BF16,
	}
}
