//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// rotateGroup divides half the rotated elements of a head where assembly turns them.
const rotateGroup = 4

// supported reads what CPU and operating system offer.
func supported() switches {
	a := &cpu.ARM64
	dotprod := a.HasASIMD && a.HasASIMDDP
	return switches{neon: a.HasASIMD, dotprod: dotprod, i8mm: dotprod && a.HasI8MM}
}
