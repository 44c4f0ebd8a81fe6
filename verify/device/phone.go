package device

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Phone describes a device.
type Phone struct {
	Serial string `json:"serial"`
	Model  string `json:"model"`
	// ABI is the preferred one, ABIs all that it executes, for example "arm64-v8a".
	ABI     string   `json:"abi"`
	ABIs    []string `json:"abis"`
	Android string   `json:"android,omitempty"`
	// Memory and Available are bytes, 0 if unknown.
	Memory    int64 `json:"memory,omitempty"`
	Available int64 `json:"available,omitempty"`
}

func (p *Phone) String() string {
	s := p.Model + " (" + p.ABI
	if p.Android != "" {
		s += ", Android " + p.Android
	}
	return s + "), serial " + p.Serial
}

const describe = `echo "maker=$(getprop ro.product.manufacturer 2>/dev/null)"
echo "model=$(getprop ro.product.model 2>/dev/null)"
echo "android=$(getprop ro.build.version.release 2>/dev/null)"
echo "abis=$(getprop ro.product.cpu.abilist 2>/dev/null)"
echo "machine=$(uname -m)"
cat /proc/meminfo
true`

// Phone asks the device what it is.
func (a *ADB) Phone(ctx context.Context) (*Phone, error) {
	out, _, err := a.Shell(ctx, describe)
	if err != nil {
		return nil, err
	}
	p := parsePhone(out)
	p.Serial = a.serial
	if len(p.ABIs) == 0 {
		return nil, fmt.Errorf("device %s does not report an ABI", a.serial)
	}
	return p, nil
}

// machines are the ABIs of the machines of uname, for systems without the properties of Android.
var machines = map[string]string{
	"aarch64": "arm64-v8a", "armv7l": "armeabi-v7a", "armv8l": "armeabi-v7a", "x86_64": "x86_64", "i686": "x86",
}

// parsePhone reads the output of describe.
func parsePhone(out string) *Phone {
	p := &Phone{}
	var maker, machine string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if name, v, ok := strings.Cut(line, "="); ok {
			switch v = strings.TrimSpace(v); name {
			case "maker":
				maker = v
			case "model":
				p.Model = v
			case "android":
				p.Android = v
			case "abis":
				p.ABIs = strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })
			case "machine":
				machine = v
			}
			continue
		}
		name, v, _ := strings.Cut(line, ":")
		switch name {
		case "MemTotal":
			p.Memory = kilobytes(v)
		case "MemAvailable":
			p.Available = kilobytes(v)
		}
	}
	if maker != "" && !strings.HasPrefix(strings.ToLower(p.Model), strings.ToLower(maker)) {
		p.Model = strings.TrimSpace(maker + " " + p.Model)
	}
	if p.Model == "" {
		p.Model = "unnamed device"
	}
	if len(p.ABIs) == 0 && machines[machine] != "" {
		p.ABIs = []string{machines[machine]}
	}
	if len(p.ABIs) > 0 {
		p.ABI = p.ABIs[0]
	}
	return p
}

// kilobytes reads a value of /proc, such as "  7841234 kB", and returns bytes, or 0 for anything else.
func kilobytes(v string) int64 {
	f := strings.Fields(v)
	if len(f) != 2 || f[1] != "kB" {
		return 0
	}
	n, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0
	}
	return n << 10
}
