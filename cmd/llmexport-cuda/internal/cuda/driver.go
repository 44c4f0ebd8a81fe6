package cuda

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// driver is the part of the CUDA driver's interface that is used.
type driver struct {
	initialize    func(flags uint32) int32
	driverVersion func(v *int32) int32
	count         func(n *int32) int32
	device        func(d *int32, n int32) int32
	name          func(name *byte, n, d int32) int32
	attribute     func(v *int32, which, d int32) int32
	totalMemory   func(n *uint64, d int32) int32
	retain        func(ctx *uintptr, d int32) int32
	setCurrent    func(ctx uintptr) int32
	newStream     func(s *uintptr, flags uint32) int32
	firstStream   func(s *uintptr, flags uint32, priority int32) int32
	newEvent      func(e *uintptr, flags uint32) int32
	record        func(e, stream uintptr) int32
	await         func(e uintptr) int32
	after         func(stream, e uintptr, flags uint32) int32
	load          func(module *uintptr, ptx *byte) int32
	function      func(f *uintptr, module uintptr, name string) int32
	setFunction   func(f uintptr, which, v int32) int32
	memory        func(free, total *uint64) int32
	alloc         func(p *uint64, n uint64) int32
	free          func(p uint64) int32
	allocHost     func(p *unsafe.Pointer, n uint64) int32
	freeHost      func(p unsafe.Pointer) int32
	pinHost       func(p unsafe.Pointer, n uint64, flags uint32) int32
	unpinHost     func(p unsafe.Pointer) int32
	toDevice      func(to uint64, from unsafe.Pointer, n uint64, stream uintptr) int32
	toHost        func(to unsafe.Pointer, from, n uint64, stream uintptr) int32
	launch        func(f uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, arguments, extra unsafe.Pointer) int32
}

// open loads a library with the driver's functions.
func open(library string) (*driver, error) {
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("no CUDA driver: %w", err)
	}
	d := new(driver)
	for name, f := range map[string]any{
		"cuInit": &d.initialize, "cuDriverGetVersion": &d.driverVersion, "cuDeviceGetCount": &d.count, "cuDeviceGet": &d.device,
		"cuDeviceGetName": &d.name, "cuDeviceGetAttribute": &d.attribute, "cuDeviceTotalMem_v2": &d.totalMemory,
		"cuDevicePrimaryCtxRetain": &d.retain, "cuCtxSetCurrent": &d.setCurrent,
		"cuStreamCreate": &d.newStream, "cuStreamCreateWithPriority": &d.firstStream,
		"cuEventCreate": &d.newEvent, "cuEventRecord": &d.record, "cuEventSynchronize": &d.await,
		"cuStreamWaitEvent": &d.after, "cuMemAllocHost_v2": &d.allocHost, "cuMemFreeHost": &d.freeHost,
		"cuMemHostRegister_v2": &d.pinHost, "cuMemHostUnregister": &d.unpinHost,
		"cuModuleLoadData": &d.load, "cuModuleGetFunction": &d.function, "cuFuncSetAttribute": &d.setFunction, "cuMemGetInfo_v2": &d.memory,
		"cuMemAlloc_v2": &d.alloc, "cuMemFree_v2": &d.free,
		"cuMemcpyHtoDAsync_v2": &d.toDevice, "cuMemcpyDtoHAsync_v2": &d.toHost, "cuLaunchKernel": &d.launch,
	} {
		at, err := purego.Dlsym(lib, name)
		if err != nil {
			return nil, fmt.Errorf("the CUDA driver has no %s: it is too old", name)
		}
		purego.RegisterFunc(f, at)
	}
	if rc := d.initialize(0); rc != 0 {
		if rc == 100 {
			return nil, errors.New("the CUDA driver finds no card")
		}
		return nil, failure("cuInit", rc)
	}
	return d, nil
}

// failure is the error of a call of the driver.
func failure(call string, rc int32) error { return fmt.Errorf("%s failed with %d", call, rc) }

// Card is what the driver says of a card.
type Card struct {
	Index        int
	Name         string
	Major, Minor int    // the compute capability
	Memory       uint64 // bytes
	Processors   int    // multiprocessors
	Shared       int    // the most bytes of shared memory that a block of threads may have
	Clock        int    // their highest, kHz
	Driver       int    // the newest CUDA release that the driver knows, 13000 for 13.0
}

func (c Card) String() string {
	return fmt.Sprintf("%d: %s, sm_%d%d, %.1f GiB, driver for CUDA %d.%d", c.Index, c.Name, c.Major, c.Minor, float64(c.Memory)/(1<<30),
		c.Driver/1000, c.Driver%1000/10)
}

const clockRate, multiprocessors, capabilityMajor, capabilityMinor, sharedMemory = 13, 16, 75, 76, 97 // attributes

// card describes card n and returns its handle.
func (d *driver) card(n int) (c Card, handle int32, err error) {
	c.Index = n
	var version, major, minor, processors, clock, shared int32
	name := make([]byte, 128)
	for _, call := range []struct {
		name string
		call func() int32
	}{
		{"cuDriverGetVersion", func() int32 { return d.driverVersion(&version) }},
		{"cuDeviceGet", func() int32 { return d.device(&handle, int32(n)) }},
		{"cuDeviceGetName", func() int32 { return d.name(&name[0], int32(len(name)), handle) }},
		{"cuDeviceGetAttribute", func() int32 { return d.attribute(&major, capabilityMajor, handle) }},
		{"cuDeviceGetAttribute", func() int32 { return d.attribute(&minor, capabilityMinor, handle) }},
		{"cuDeviceGetAttribute", func() int32 { return d.attribute(&processors, multiprocessors, handle) }},
		{"cuDeviceGetAttribute", func() int32 { return d.attribute(&clock, clockRate, handle) }},
		{"cuDeviceGetAttribute", func() int32 { return d.attribute(&shared, sharedMemory, handle) }},
		{"cuDeviceTotalMem", func() int32 { return d.totalMemory(&c.Memory, handle) }},
	} {
		if rc := call.call(); rc != 0 {
			return c, 0, failure(call.name, rc)
		}
	}
	text, _, _ := strings.Cut(string(name), "\x00")
	c.Name, c.Major, c.Minor, c.Driver, c.Processors, c.Clock, c.Shared = text, int(major), int(minor), int(version), int(processors), int(clock), int(shared)
	return c, handle, nil
}

// Cards lists the cards of this machine.
func Cards() ([]Card, error) {
	d, err := open(library())
	if err != nil {
		return nil, err
	}
	var n int32
	if rc := d.count(&n); rc != 0 {
		return nil, failure("cuDeviceGetCount", rc)
	}
	var list []Card
	for i := range int(n) {
		c, _, err := d.card(i)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}
