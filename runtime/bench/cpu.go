package bench

import (
	goruntime "runtime"
	"strings"
)

// CPUModel returns the name of the CPU as the system reports it, or the architecture.
func CPUModel() string {
	if name := strings.Join(strings.Fields(systemCPUModel()), " "); name != "" {
		return name
	}
	return goruntime.GOARCH
}
