package machine

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// ReadMemory reads /proc/meminfo and the limits of the control groups of the process.
func ReadMemory() Memory { return readMemory(os.DirFS("/")) }

func readMemory(root fs.FS) Memory {
	m := Memory{Total: kibibytes(root, "MemTotal"), Available: kibibytes(root, "MemAvailable")}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		// Fields are the number of the hierarchy, its controllers, which version 2 leaves empty, and the group.
		field := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(field) != 3:
		case field[1] == "":
			m.limit(root, "sys/fs/cgroup", field[2], "memory.max", "memory.current")
		case strings.Contains(","+field[1]+",", ",memory,"):
			m.limit(root, "sys/fs/cgroup/memory", field[2], "memory.limit_in_bytes", "memory.usage_in_bytes")
		}
	}
	return m
}

// limit applies the limits of a group and those above it. In a container the group may be named as outside, where only the
// top is mounted.
func (m *Memory) limit(root fs.FS, top, group, limit, usage string) {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		dir := path.Join(top, at)
		most, err := number(root, path.Join(dir, limit))
		if err == nil && most < m.Total {
			m.Total = most
			used, err := number(root, path.Join(dir, usage))
			if err == nil {
				m.Available = min(m.Available, max(0, most-used))
			}
		}
		if at == "/" {
			return
		}
	}
}

// number reads a file that is one number; no limit is the word max, or a number above all memory.
func number(root fs.FS, name string) (int64, error) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

func kibibytes(root fs.FS, key string) int64 {
	b, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key+":" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}
