//go:build (!amd64 && !arm64) || purego

package kernel

import "runtime"

func pause() { runtime.Gosched() }
