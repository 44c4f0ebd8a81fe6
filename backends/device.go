package backends

import (
	"fmt"
	"slices"
	"strings"
)

// Device is a kind of device that packages are made for.
type Device struct {
	// Name is the word of init --for.
	Name string
	// Backends are the backends that apps use on such devices, the CPU first.
	Backends []string
	// Memory is how much an app may count on there, in bytes, weights and keys and values included. Why says where it comes from.
	Memory int64
	Why    string
}

// devices is the table of kinds of devices, sorted by name. Memory is a rule of thumb: systems end apps that take more than about
// half of it.
var devices = []Device{
	{Name: "android", Backends: []string{"cpu", "opencl", "vulkan"}, Memory: 3 << 30, Why: "half of a phone with 6 GB"},
	{Name: "desktop", Backends: []string{"cpu", "vulkan"}, Memory: 8 << 30, Why: "half of a computer with 16 GB"},
	{Name: "ios", Backends: []string{"cpu", "metal"}, Memory: 2 << 30, Why: "half of a phone with 4 GB"},
}

// DeviceOf returns the kind of device called name. The error for an unknown name lists the known ones.
func DeviceOf(name string) (*Device, error) {
	i := slices.IndexFunc(devices, func(d Device) bool { return d.Name == name })
	if i < 0 {
		var names []string
		for _, d := range devices {
			names = append(names, d.Name)
		}
		return nil, fmt.Errorf("must be %s, not %q", strings.Join(names, ", "), name)
	}
	return &devices[i], nil
}
