package bench

import (
	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/backend"
)

// Report is the result of Run.
type Report struct {
	Machine Machine `json:"machine"`
	Package Facts   `json:"package"`
	// Backend and Mode, "int8" or "float", are those of the runs.
	Backend string `json:"backend"`
	Mode    string `json:"mode"`
	// Prompt, Decode, Depth and Repetitions are the options.
	Prompt      int `json:"prompt"`
	Decode      int `json:"decode"`
	Depth       int `json:"depth"`
	Repetitions int `json:"repetitions"`
	// PeakRSS is the largest resident size of the process in bytes, including mapped weights; absent where the system
	// does not report it.
	PeakRSS int64 `json:"peak_rss_bytes,omitempty"`
	// Results has one entry for every thread count, in the order of the options.
	Results []Result `json:"results"`
}

// Machine describes the hardware.
type Machine struct {
	// CPU is the model's name, or the architecture where the system does not report it.
	CPU string `json:"cpu"`
	// Processors available to the process.
	Processors int    `json:"processors"`
	Platform   string `json:"platform"`
	Go         string `json:"go"`
	// Features are the instruction sets of the CPU that the kernels support, Tier the kernels in use.
	Features []string `json:"features"`
	Tier     string   `json:"tier"`
}

// Facts describe the package.
type Facts struct {
	Dir string `json:"dir"`
	// Digest of its manifest; absent for a package of another tool.
	Digest digest.Digest `json:"digest,omitempty"`
	// Bytes of all files.
	Bytes int64 `json:"bytes"`
	Cost
}

// Result is the result for one thread count.
type Result struct {
	Threads int  `json:"threads"`
	Load    Load `json:"load"`
	// Prefill and Decode are absent if they were left out.
	Prefill *Rate `json:"prefill,omitempty"`
	Decode  *Rate `json:"decode,omitempty"`
	// Peaks of the machine with as many threads.
	Peaks Peaks `json:"peaks"`
}

// Load is the time from opening the files to the first logits, in seconds. It happens once for each thread count; the
// first may read the files from disk, later ones from the page cache.
type Load struct {
	Open    float64 `json:"open_s"`
	Compile float64 `json:"compile_s"`
	Prefill float64 `json:"prefill_s"`
	Total   float64 `json:"total_s"`
}

// Rate is a speed. Giga is that of the median run, in 10^9 per second: arithmetic operations for a prefill, bytes of
// weights and KV cache for a decode.
type Rate struct {
	TokensPerSecond Spread  `json:"tokens_per_second"`
	Giga            float64 `json:"giga_per_second"`
	// Share of the machine's peak, from 0 to 1: of arithmetic for a prefill, of memory reads for a decode. Absent if
	// the peak was not measured. A package that fits in a cache can exceed 1.
	Share float64 `json:"share_of_peak,omitempty"`
}

// rate sets the fields that depend on the package's cost and the machine's peaks.
func (r *Report) rate(res *Result, mode backend.Mode) {
	c := r.Package.Cost
	if p := res.Prefill; p != nil {
		p.Giga = c.prefillOperations(r.Prompt) / float64(r.Prompt) * p.TokensPerSecond.Median / 1e9
		kind := "fp32"
		if mode == backend.Int8 {
			kind = "int8"
		}
		p.Share = share(p.Giga, res.Peaks.compute(kind))
	}
	if d := res.Decode; d != nil {
		d.Giga = c.decodeBytes(r.Depth, r.Decode) / float64(r.Decode) * d.TokensPerSecond.Median / 1e9
		d.Share = share(d.Giga, res.Peaks.Read)
	}
}

func share(rate, peak float64) float64 {
	if peak == 0 {
		return 0
	}
	return rate / peak
}
