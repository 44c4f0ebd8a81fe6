package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/bench"
)

// writeBench prints r as tables.
func writeBench(w io.Writer, r *bench.Report) error {
	s := sheet.New()
	s.Row("cpu", fmt.Sprintf("%s, %s kernels", r.Machine.CPU, r.Machine.Tier))
	s.Row("package", r.Package.Dir)
	if r.Package.Digest != "" {
		s.Row("digest", string(r.Package.Digest))
	}
	s.Row("size", sheet.Size(r.Package.Bytes))
	s.Row("weights", fmt.Sprintf("%d, most in %d bits; %s a token", r.Package.Weights, r.Package.Bits, sheet.Size(r.Package.WeightBytes)))
	s.Row("mode", r.Mode)
	s.Row("repetitions", fmt.Sprint(r.Repetitions))
	if r.PeakRSS > 0 {
		s.Row("peak memory", sheet.Size(r.PeakRSS))
	}
	errs := []error{s.Write(w, true)}

	s = sheet.New("test", ">threads", ">tokens/s", ">min", ">max", ">std dev", ">rate", "of peak")
	unit := "GFLOPS"
	if r.Mode == backend.Int8.String() {
		unit = "GOPS"
	}
	for _, res := range r.Results {
		benchRow(s, fmt.Sprintf("prefill %d", r.Prompt), res.Threads, res.Prefill, unit)
		benchRow(s, fmt.Sprintf("decode %d after %d", r.Decode, r.Depth), res.Threads, res.Decode, "GB/s")
	}
	errs = append(errs, s.Write(w, false))

	s = sheet.New("load", ">threads", ">open s", ">compile s", ">prefill s", ">first token s")
	for _, res := range r.Results {
		l := res.Load
		s.Row("", res.Threads, fmt.Sprintf("%.3f", l.Open), fmt.Sprintf("%.3f", l.Compile), fmt.Sprintf("%.3f", l.Prefill), fmt.Sprintf("%.3f", l.Total))
	}
	errs = append(errs, s.Write(w, false))

	s = sheet.New("peak", ">threads", ">rate")
	for _, res := range r.Results {
		for _, c := range res.Peaks.Compute {
			s.Row(c.Kind+" "+c.Instruction, res.Threads, fmt.Sprintf("%.1f %s", c.Giga, computeUnit(c.Kind)))
		}
		read := "not measured"
		if res.Peaks.Read > 0 {
			read = fmt.Sprintf("%.1f GB/s", res.Peaks.Read)
		}
		s.Row("read memory", res.Threads, read)
	}
	return errors.Join(append(errs, s.Write(w, false))...)
}

// computeUnit returns the unit of operations of a kind.
func computeUnit(kind string) string {
	if kind == "int8" {
		return "GOPS"
	}
	return "GFLOPS"
}

// benchRow adds a row for rate unless it is nil.
func benchRow(s *sheet.Table, test string, threads int, rate *bench.Rate, unit string) {
	if rate == nil {
		return
	}
	t, share := rate.TokensPerSecond, "not measured"
	if rate.Share > 0 {
		share = fmt.Sprintf("%.1f %%", 100*rate.Share)
	}
	number := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	s.Row(test, threads, number(t.Median), number(t.Min), number(t.Max), number(t.StdDev), fmt.Sprintf("%.1f %s", rate.Giga, unit), share)
}
