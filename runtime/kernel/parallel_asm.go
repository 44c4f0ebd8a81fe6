//go:build (amd64 || arm64) && !purego

package kernel

// pause hints to the processor that this is a spin loop.
//
//go:noescape
func pause()
