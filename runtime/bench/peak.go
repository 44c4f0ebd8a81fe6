package bench

import (
	"math"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Peaks are the maximum rates of the machine with some number of threads: the best of many short rounds, measured right
// after the package. They are empty in a build without assembly.
type Peaks struct {
	// Read is the bandwidth of memory reads outside all caches, in GB/s (10^9 bytes); 0 if not measured.
	Read float64 `json:"read_gb_per_second,omitempty"`
	// Compute lists rates of register-only arithmetic.
	Compute []Compute `json:"compute"`
}

// Compute is a peak rate of arithmetic.
type Compute struct {
	// Kind is "fp32", "int8" or "bf16".
	Kind        string `json:"kind"`
	Instruction string `json:"instruction"`
	// Giga is 10^9 operations per second; a multiply-add is two operations.
	Giga float64 `json:"giga_per_second"`
}

func (p *Peaks) compute(kind string) float64 {
	for _, c := range p.Compute {
		if c.Kind == kind {
			return c.Giga
		}
	}
	return 0
}

const (
	// readBytes is more than a last-level cache holds.
	readBytes = 288 << 20
	// peakBudget is the time for all rounds, in addition to that for filling the memory.
	peakBudget = 500 * time.Millisecond
	// peakKinds is the maximum number of peaks: three of arithmetic and one of memory.
	peakKinds = 4
	// roundCalls of a loop take two milliseconds, long compared to the synchronization of threads.
	roundCalls = 160
)

// machinePeaks measures the peaks for every thread count.
func machinePeaks(threads []int) []Peaks {
	all := make([]Peaks, len(threads))
	budget := peakBudget / time.Duration(peakKinds*len(threads))
	var memory []byte
	if kernel.PeakRead(nil) {
		memory = make([]byte, readBytes)
		for i := 0; i < len(memory); i += 4096 { // unwritten pages all map to the same zero page
			memory[i] = 1
		}
	}
	for i, n := range threads {
		all[i].Compute = []Compute{}
		for _, l := range kernel.PeakLoops() {
			best := fastest(n, budget, func(int) {
				for range roundCalls {
					l.Run()
				}
			})
			all[i].Compute = append(all[i].Compute, Compute{l.Kind, l.Instruction, l.Operations * roundCalls * float64(n) / best.Seconds() / 1e9})
		}
		if memory != nil {
			part := len(memory) / n / kernel.PeakReadBlock * kernel.PeakReadBlock
			best := fastest(n, budget, func(thread int) { kernel.PeakRead(memory[thread*part:][:part]) })
			all[i].Read = float64(part*n) / best.Seconds() / 1e9
		}
	}
	return all
}

// fastest runs rounds in which all threads call f once, and returns the time of the shortest. Threads spin between
// rounds, because waking one takes as long as much of the work.
func fastest(threads int, budget time.Duration, f func(thread int)) time.Duration {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	var (
		begun, done atomic.Int64
		wg          sync.WaitGroup
	)
	const end = math.MaxInt64
	for t := 1; t < threads; t++ {
		wg.Go(func() {
			goruntime.LockOSThread()
			defer goruntime.UnlockOSThread()
			for round := int64(1); ; round++ {
				for begun.Load() < round {
					goruntime.Gosched()
				}
				if begun.Load() == end {
					return
				}
				f(t)
				done.Add(1)
			}
		})
	}
	best := time.Duration(math.MaxInt64)
	for first, round := time.Now(), int64(1); round <= 2 || time.Since(first) < budget; round++ {
		start := time.Now()
		begun.Store(round)
		f(0)
		for done.Load() < round*int64(threads-1) {
			goruntime.Gosched()
		}
		best = min(best, time.Since(start))
	}
	begun.Store(end)
	wg.Wait()
	return best
}
