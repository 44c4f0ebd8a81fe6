//go:build (amd64 || arm64) && !purego

package kernel

// pause tells the processor that it waits in a loop.
//
//go:noescape
func pause()
