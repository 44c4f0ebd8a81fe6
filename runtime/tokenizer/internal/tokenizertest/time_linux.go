package tokenizertest

import (
	"runtime"
	"syscall"
	"time"
)

// Took is the processor time that do takes on its thread: other work on the machine does not count.
func Took(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadTime()
	do()
	return threadTime() - start
}

func threadTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
