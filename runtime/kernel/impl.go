package kernel

import (
	"fmt"
	"os"
)

// tierVariable forces a tier of SIMD code: generic, avx2 or avx512. Every tier gives the same bits.
const tierVariable = "LLMEXPORT_KERNEL"

// tiers are the sets of instructions that the kernels may use, in ascending order.
var tiers = []struct {
	name string
	uses switches
}{
	{"generic", switches{}},
	{"avx2", switches{avx2: true}},
	{"avx512", switches{avx2: true, avx512: true, vnni: true}},
}

// switches say which code runs. The dispatching functions read them at every call.
type switches struct {
	avx2   bool // AVX2, FMA and F16C, which every CPU with AVX2 has
	avx512 bool // AVX-512 F; implies avx2
	vnni   bool // AVX-512 VNNI; implies avx512
}

// use is fixed at start; only tests change it.
var use, tierErr = choose(os.Getenv(tierVariable), supported())

// choose limits what the CPU has to a tier; "" is the best one. After an error the best one runs.
func choose(tier string, have switches) (switches, error) {
	if tier == "" {
		return have, nil
	}
	for _, t := range tiers {
		if t.name != tier {
			continue
		}
		s := switches{avx2: have.avx2 && t.uses.avx2, avx512: have.avx512 && t.uses.avx512, vnni: have.vnni && t.uses.vnni}
		if s.tier() != tier {
			return have, fmt.Errorf("%s=%s: this CPU or build has %s at most", tierVariable, tier, have.tier())
		}
		return s, nil
	}
	return have, fmt.Errorf("%s=%q is none of generic, avx2, avx512", tierVariable, tier)
}

func (s switches) tier() string {
	switch {
	case s.avx512:
		return "avx512"
	case s.avx2:
		return "avx2"
	}
	return "generic"
}

// Tier names the SIMD code in use: generic, avx2 or avx512. It is the best that the CPU has, unless the environment
// variable LLMEXPORT_KERNEL names a lower one. The error says why the variable was ignored.
func Tier() (string, error) { return use.tier(), tierErr }
