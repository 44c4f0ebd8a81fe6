//go:build unix

package disk

import "golang.org/x/sys/unix"

// writable returns an error if the process may not create files in dir.
func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
