//go:build !linux && !darwin

package bench

import "os"

// systemCPUModel is what Windows puts into the environment.
func systemCPUModel() string { return os.Getenv("PROCESSOR_IDENTIFIER") }

func peakRSS() int64 { return 0 }
