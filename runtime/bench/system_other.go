//go:build !linux && !darwin

package bench

import "os"

// systemCPUModel returns the name that Windows provides in the environment.
func systemCPUModel() string { return os.Getenv("PROCESSOR_IDENTIFIER") }

func peakRSS() int64 { return 0 }
