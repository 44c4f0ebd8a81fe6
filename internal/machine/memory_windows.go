package machine

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// ReadMemory calls GlobalMemoryStatusEx.
func ReadMemory() Memory {
	var status struct { // MEMORYSTATUSEX
		length, load     uint32
		total, available uint64
		_                [5]uint64
	}
	status.length = uint32(unsafe.Sizeof(status))
	call := windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")
	if ok, _, _ := call.Call(uintptr(unsafe.Pointer(&status))); ok == 0 {
		return Memory{}
	}
	return Memory{Total: int64(status.total), Available: int64(status.available)}
}
