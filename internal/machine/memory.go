// Package machine tells what the program runs on.
package machine

// Memory is the main memory in bytes; fields are 0 where the system does not tell.
type Memory struct {
	// Total is the memory of the machine, or of the container or group of processes if that may use less.
	Total int64
	// Available is what new allocations can get without swapping.
	Available int64
}
