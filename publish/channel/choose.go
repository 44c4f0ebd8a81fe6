package channel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Want says which package of a release is wanted. The zero value wants the only one.
type Want struct {
	// Name of the package.
	Name string
	// MaxRAM is the memory of the device in bytes; 0 is any.
	MaxRAM int64
	// For is a kind of device, see [Devices], or a backend; empty is any.
	For string
}

// devices are the backends of kinds of devices.
var devices = []struct {
	name     string
	backends []string
}{
	{"android", []string{"cpu", "hexagon", "opencl", "vulkan"}},
	{"desktop", []string{"cpu", "cuda", "metal", "opencl", "vulkan"}},
	{"ios", []string{"cpu", "metal"}},
}

// Devices lists the kinds of devices.
func Devices() []string {
	var list []string
	for _, d := range devices {
		list = append(list, d.name)
	}
	return list
}

// backendsFor returns the backends of a kind of device, or the backend of that name.
func backendsFor(name string) []string {
	for _, d := range devices {
		if d.name == name {
			return d.backends
		}
	}
	return []string{name}
}

// AmbiguousError is the error for a release of several packages if none is wanted in particular.
type AmbiguousError struct{ Packages []Package }

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the channel names %d packages: %s", len(e.Packages), names(e.Packages))
}

func names(list []Package) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Name)
	}
	return strings.Join(out, ", ")
}

// Choose returns the wanted package and the reason in words. Of the packages that fit the device it is the one that is
// closest to the source: verified, with the least divergence, or, where that was not measured, the most bits. If none fits,
// the error is tensor.ErrUnsupported.
func (r Release) Choose(w Want) (Package, string, error) {
	list := r.Packages
	if w.Name != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(p Package) bool { return p.Name != w.Name })
		if len(list) == 0 {
			return Package{}, "", fmt.Errorf("the channel has no package %q; it has %s", w.Name, names(r.Packages))
		}
	}
	if w.MaxRAM == 0 && w.For == "" {
		if len(list) > 1 {
			return Package{}, "", &AmbiguousError{list}
		}
		return list[0], "", nil
	}
	fit := slices.DeleteFunc(slices.Clone(list), func(p Package) bool { return w.misfit(p) != "" })
	if len(fit) == 0 {
		var why []string
		for _, p := range list {
			why = append(why, p.Name+" "+w.misfit(p))
		}
		return Package{}, "", fmt.Errorf("no package of the channel fits: %s: %w", strings.Join(why, "; "), tensor.ErrUnsupported)
	}
	best := slices.MinFunc(fit, closer)
	return best, w.reason(best, len(fit), len(list)), nil
}

// misfit is why a package does not fit; empty if it does.
func (w Want) misfit(p Package) string {
	runs := func(backend string) bool { return slices.Contains(p.Backends, backend) }
	switch {
	case w.For != "" && !slices.ContainsFunc(backendsFor(w.For), runs):
		return fmt.Sprintf("is made for %s", strings.Join(p.Backends, ", "))
	case w.MaxRAM > 0 && p.DeviceBytes == 0:
		return "does not tell its memory"
	case w.MaxRAM > 0 && p.DeviceBytes > w.MaxRAM:
		return "needs " + sheet.Size(p.DeviceBytes)
	}
	return ""
}

// closer orders packages by how close they are to their source, the closest first.
func closer(a, b Package) int {
	unverified := func(p Package) int {
		if p.Verified {
			return 0
		}
		return 1
	}
	kl := func(p Package) float64 {
		if p.KL == nil {
			return math.Inf(1)
		}
		return *p.KL
	}
	return cmp.Or(cmp.Compare(unverified(a), unverified(b)), cmp.Compare(kl(a), kl(b)), cmp.Compare(b.Bits, a.Bits), cmp.Compare(a.Bytes, b.Bytes),
		strings.Compare(a.Name, b.Name))
}

// reason says why the best of those that fit was chosen.
func (w Want) reason(best Package, fit, all int) string {
	what := "the most bits a weight"
	if best.KL != nil {
		what = fmt.Sprintf("the least divergence, %.2g nats", *best.KL)
	}
	var limits []string
	if w.MaxRAM > 0 {
		limits = append(limits, "fit "+sheet.Size(w.MaxRAM))
	}
	if w.For != "" {
		limits = append(limits, "run on "+w.For)
	}
	text := fmt.Sprintf("%s of the %d of %d packages that %s", what, fit, all, strings.Join(limits, " and "))
	if fit == 1 {
		text = fmt.Sprintf("the only one of %d packages to %s", all, strings.Join(limits, " and "))
	}
	if best.DeviceBytes > 0 {
		text += "; it needs " + sheet.Size(best.DeviceBytes)
	}
	return text
}
