package machine

import "golang.org/x/sys/unix"

// ReadMemory asks the kernel, which tells only the total.
func ReadMemory() Memory {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Memory{}
	}
	return Memory{Total: int64(n)}
}
