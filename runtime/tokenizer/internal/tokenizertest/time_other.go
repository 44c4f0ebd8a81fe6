//go:build !linux

package tokenizertest

import "time"

// Took is the time that do takes.
func Took(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}
