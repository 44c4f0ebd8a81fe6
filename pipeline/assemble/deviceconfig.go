package assemble

import (
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/backends"
)

// DeviceConfigFile returns the name of the configuration for a backend. An app opens that file in place of config.json; both name
// the same weights.
func DeviceConfigFile(backend string) string {
	if backend == "cpu" {
		return ConfigFile
	}
	return "config." + backend + ".json"
}

// isDeviceConfig reports whether a file is the configuration for a backend other than the CPU.
func isDeviceConfig(name string) bool {
	for _, backend := range backends.ProfileNames() {
		if backend != "cpu" && name == DeviceConfigFile(backend) {
			return true
		}
	}
	return false
}

// features are those of the plan, with the precision that verification found to be needed.
func (a *Package) features() backends.Features {
	f := a.Features()
	if f.Needs = ""; a.run.Precision != precisions[0] {
		f.Needs = a.run.Precision
	}
	return f
}

// deviceConfig is the configuration for a backend. Towers stay on the CPU, because none was run on another backend.
func (a *Package) deviceConfig(p *backends.Profile) runConfig {
	f, c := a.features(), a.run
	s := a.settings(p, &f)
	c.Backend, c.Precision, c.Memory = p.Name, s.Precision, s.Memory
	if c.Threads = shippedThreads; p.Threads != 0 {
		c.Threads = p.Threads
	}
	// Both options concern activations in int8, which only the CPU has.
	c.DynamicOption, c.Chunk = 0, 0
	if !p.Int8Cache {
		c.AttentionMode = 0
	}
	return c
}

// writeDeviceConfigs writes a configuration for every backend of the target other than the CPU.
func (a *Package) writeDeviceConfigs() error {
	for _, p := range a.Profiles {
		if p.Name == "cpu" {
			continue
		}
		b, err := a.deviceConfig(p).json(a.m.Content())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(a.dir, DeviceConfigFile(p.Name)), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}
