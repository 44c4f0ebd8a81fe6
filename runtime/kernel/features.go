package kernel

// Features names the instruction sets that the CPU has and the kernels know, whether the tier in use has them or not.
// It is empty on a CPU without any and in a build without assembly.
func Features() []string { return supported().names() }

func (s switches) names() []string {
	var names []string
	for _, f := range []struct {
		has  bool
		name string
	}{
		{s.avx2, "AVX2"}, {s.avx2, "FMA"}, {s.avx2, "F16C"}, {s.avxvnni, "AVX-VNNI"},
		{s.avx512, "AVX-512"}, {s.vnni, "AVX-512-VNNI"}, {s.bf16, "AVX-512-BF16"},
		{s.neon, "NEON"}, {s.dotprod, "DOTPROD"}, {s.i8mm, "I8MM"},
	} {
		if f.has {
			names = append(names, f.name)
		}
	}
	return names
}
