//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// supported reads what CPU and operating system offer.
func supported() switches {
	x := &cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA && x.HasF16C
	avx512 := avx2 && x.HasAVX512F
	return switches{avx2: avx2, avx512: avx512, vnni: avx512 && x.HasAVX512VNNI}
}
