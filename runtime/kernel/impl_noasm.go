//go:build (!amd64 && !arm64) || purego

package kernel

func supported() switches { return switches{} }
