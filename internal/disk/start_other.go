//go:build !linux

package disk

import "os"

func startWriting(*os.File, int64, int64) {}
