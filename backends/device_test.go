package backends

import (
	"slices"
	"strings"
	"testing"
)

func TestDevices(t *testing.T) {
	if !slices.IsSortedFunc(devices, func(a, b Device) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the table is not sorted")
	}
	for _, want := range devices {
		d, err := DeviceOf(want.Name)
		if err != nil || d.Memory < 1<<30 || d.Why == "" || d.Backends[0] != "cpu" {
			t.Errorf("%+v: %v", d, err)
		}
		for _, b := range d.Backends {
			if _, err := ProfileOf(b); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := DeviceOf("toaster"); err == nil || err.Error() != `must be android, desktop, ios, not "toaster"` {
		t.Error(err)
	}
}
