//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// supported reads what CPU and operating system offer.
func supported() switches {
	a := &cpu.ARM64
	dotprod := a.HasASIMD && a.HasASIMDDP
	return switches{neon: a.HasASIMD, dotprod: dotprod, i8mm: dotprod && a.HasI8MM}
}
