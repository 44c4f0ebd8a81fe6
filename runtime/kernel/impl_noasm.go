//go:build !amd64 || purego

package kernel

func supported() switches { return switches{} }
