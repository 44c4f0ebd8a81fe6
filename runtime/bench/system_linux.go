package bench

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// systemCPUModel returns the name from /proc/cpuinfo, which has none on many ARM machines.
func systemCPUModel() string { return procValue("/proc/cpuinfo", "model name") }

// peakRSS returns the largest resident size of the process in bytes, or 0.
func peakRSS() int64 {
	kib, err := strconv.ParseInt(strings.TrimSuffix(procValue("/proc/self/status", "VmHWM"), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// procValue returns the first value of a key in a file of lines "key: value".
func procValue(path, key string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
