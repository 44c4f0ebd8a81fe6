package kernel

import (
	"fmt"
	"os"
	"strings"
)

// tierVariable forces a tier of SIMD code, named as in tiers. Every tier gives the same bits.
const tierVariable = "LLMEXPORT_KERNEL"

// tier is a set of instructions that the kernels may use.
type tier struct {
	name string
	uses switches
}

// tiers of all architectures, in ascending order for each. A CPU of one architecture has none of the other's
// instructions, so only its own tiers can be chosen.
var tiers = []tier{
	{"generic", switches{}},
	{"avx2", switches{avx2: true}},
	{"avxvnni", switches{avx2: true, avxvnni: true}},
	{"avx512", switches{avx2: true, avxvnni: true, avx512: true, vnni: true, bf16: true}},
	{"neon", switches{neon: true}},
	{"dotprod", switches{neon: true, dotprod: true}},
	{"i8mm", switches{neon: true, dotprod: true, i8mm: true}},
}

// switches select the code that runs. The dispatching functions read them at every call.
type switches struct {
	avx2    bool // AVX2, FMA and F16C, which every CPU with AVX2 has
	avxvnni bool // AVX-VNNI, the VEX form of VPDPBUSD; implies avx2
	avx512  bool // AVX-512 F, BW, DQ and VL; implies avx2
	vnni    bool // AVX-512 VNNI; implies avx512
	bf16    bool // AVX-512 BF16; implies avx512

	neon    bool // Advanced SIMD of arm64
	dotprod bool // SDOT; implies neon
	i8mm    bool // SMMLA; implies dotprod
}

// and returns the switches that both have.
func (s switches) and(o switches) switches {
	return switches{
		avx2: s.avx2 && o.avx2, avxvnni: s.avxvnni && o.avxvnni,
		avx512: s.avx512 && o.avx512, vnni: s.vnni && o.vnni, bf16: s.bf16 && o.bf16,
		neon: s.neon && o.neon, dotprod: s.dotprod && o.dotprod, i8mm: s.i8mm && o.i8mm,
	}
}

// simd reports whether any assembly runs.
func (s switches) simd() bool { return s.avx2 || s.neon }

// use is fixed at start; only tests change it.
var use, tierErr = choose(os.Getenv(tierVariable), supported())

// choose limits the instructions of the CPU to a tier; "" is the best one. After an error the best one runs.
func choose(name string, have switches) (switches, error) {
	if name == "" {
		return have, nil
	}
	var names []string
	for _, t := range tiers {
		names = append(names, t.name)
		if t.name != name {
			continue
		}
		s := have.and(t.uses)
		if s.tier() != name {
			return have, fmt.Errorf("%s=%s: this CPU or build has %s at most", tierVariable, name, have.tier())
		}
		return s, nil
	}
	return have, fmt.Errorf("%s=%q is none of %s", tierVariable, name, strings.Join(names, ", "))
}

// tier is the name of the best tier that s reaches.
func (s switches) tier() string {
	switch {
	case s.avx512:
		return "avx512"
	case s.avxvnni:
		return "avxvnni"
	case s.avx2:
		return "avx2"
	case s.i8mm:
		return "i8mm"
	case s.dotprod:
		return "dotprod"
	case s.neon:
		return "neon"
	}
	return "generic"
}

// Tier names the SIMD code in use: generic; avx2, avxvnni or avx512; neon, dotprod or i8mm. It is the best that the CPU
// has, unless the environment variable LLMEXPORT_KERNEL names a lower one. The error is the reason that the variable was ignored.
func Tier() (string, error) { return use.tier(), tierErr }
