package machine

import (
	"testing"
	"testing/fstest"
)

func TestReadMemory(t *testing.T) {
	t.Parallel()
	const free = "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  Memory
	}{
		"nothing":  {map[string]string{}, Memory{}},
		"no group": {map[string]string{"proc/meminfo": free}, Memory{16 << 20, 8 << 20}},
		"no limit": {map[string]string{"proc/meminfo": free, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"},
			Memory{16 << 20, 8 << 20}},
		"limit above": {map[string]string{"proc/meminfo": free, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "4194304\n",
			"sys/fs/cgroup/a/memory.current": "1048576\n"}, Memory{4 << 20, 3 << 20}},
		"container": {map[string]string{"proc/meminfo": free, "proc/self/cgroup": "0::/docker/x\n", "sys/fs/cgroup/memory.max": "4194304\n",
			"sys/fs/cgroup/memory.current": "9999999\n"}, Memory{4 << 20, 0}},
		"version 1": {map[string]string{"proc/meminfo": free, "proc/self/cgroup": "5:cpu:/\n4:hugetlb,memory:/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8388608", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "0"}, Memory{8 << 20, 8 << 20}},
		"version 1 without limit": {map[string]string{"proc/meminfo": free, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, Memory{16 << 20, 8 << 20}},
		"damaged": {map[string]string{"proc/meminfo": "MemTotal: x\n:\n", "proc/self/cgroup": "::\n0\n", "sys/fs/cgroup/memory.max": ""}, Memory{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := fstest.MapFS{}
			for name, text := range tc.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := readMemory(root); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
	if m := ReadMemory(); m.Total < 1<<20 || m.Available > m.Total {
		t.Errorf("of this machine: %+v", m)
	}
}
