package about

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// metric returns a measurement of the report; ok is false if it was not made.
func (r *Report) metric(name string) (m Measure, ok bool) {
	i := slices.IndexFunc(r.Metrics, func(m Measure) bool { return m.Name == name && m.Value != nil })
	if i < 0 {
		return m, false
	}
	return r.Metrics[i], true
}

// Closeness returns the mean divergence of the package as shipped from its source in nats, with its standard error; ok is
// false if it was not measured.
func (r *Report) Closeness() (kl, stderr float64, ok bool) {
	m, ok := r.metric("kl")
	if !ok {
		return 0, 0, false
	}
	return *m.Value, m.StdErr, true
}

// Quality describes in a sentence how close the package is to its source.
func (r *Report) Quality() string {
	on := "the text"
	if r.Divergence != nil {
		on = r.Divergence.Text
	}
	kl, stderr, ok := r.Closeness()
	same, both := r.metric("same_top_token")
	distance, hasDistance := r.metric("cosine_distance")
	scores, hasScores := r.metric("score_error")
	switch {
	case hasDistance:
		return fmt.Sprintf("One minus the cosine between its vectors and the source's is %s on average (0 is identical).", short(*distance.Value, 3))
	case hasScores:
		return fmt.Sprintf("Its scores differ from the source's by %s of their spread (0 is identical).", short(*scores.Value, 3))
	case ok && both:
		distance := short(kl, 3)
		if stderr > 0 {
			distance += " ± " + short(stderr, 1)
		}
		return fmt.Sprintf("On %s its most likely next token is the source's in %s %% of cases, and its predictions diverge by "+
			"%s nats per token (KL divergence; 0 is identical).", on, strconv.FormatFloat(100**same.Value, 'f', 1, 64), distance)
	case len(r.Metrics) > 0:
		if ppl, ok := r.metric("perplexity"); ok {
			return fmt.Sprintf("Its perplexity is %s on %s; it was not compared with the weights of its source.", short(*ppl.Value, 4), on)
		}
	}
	return "Its quality was not measured."
}

// Verdict is the result of the checks in a sentence.
func (r *Report) Verdict() string {
	var failed []string
	passed, skipped := 0, 0
	for _, c := range r.Checks {
		switch c.Outcome {
		case Failed:
			failed = append(failed, c.Name)
		case Passed:
			passed++
		case Skipped:
			skipped++
		}
	}
	switch {
	case len(failed) > 0:
		return "NOT VERIFIED: " + strings.Join(failed, ", ") + " failed."
	case !r.Verified:
		return "NOT VERIFIED: no check has shown that this package behaves like its source."
	}
	if skipped > 0 {
		return fmt.Sprintf("Verified: %d checks passed, %d skipped.", passed, skipped)
	}
	return fmt.Sprintf("Verified: %d checks passed.", passed)
}

// Sizes describes disk and memory in a sentence.
func (r *Report) Sizes() string {
	text := Bytes(r.PackageBytes) + " on disk"
	if r.SourceBytes > 0 {
		text += fmt.Sprintf(", %.0f %% of the source's %s", 100*float64(r.PackageBytes)/float64(r.SourceBytes), Bytes(r.SourceBytes))
	}
	if r.DeviceBytes > 0 {
		text += "; about " + Bytes(r.DeviceBytes) + " of memory on a device"
		if r.DeviceContext > 0 {
			text += fmt.Sprintf(" with %d tokens of context", r.DeviceContext)
		}
	}
	return text + "."
}

// Bytes formats a size with three digits in decimal units, as shops and file managers do.
func Bytes(n int64) string {
	v, unit := float64(n), 0
	units := []string{"bytes", "kB", "MB", "GB", "TB"}
	for v >= 999.5 && unit < len(units)-1 {
		v /= 1000
		unit++
	}
	if unit == 0 {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	digits := 0
	switch {
	case v < 9.995:
		digits = 2
	case v < 99.95:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + units[unit]
}

// short formats a number to some significant digits, and whole numbers in full.
func short(v float64, digits int) string {
	if v == float64(int64(v)) {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', digits, 64)
}

// Text is the value as tables show it: four digits, shares in percent.
func (m Measure) Text() string {
	switch {
	case m.Value == nil:
		return ""
	case m.Name == "same_top_token":
		return strconv.FormatFloat(100**m.Value, 'f', 1, 64) + " %"
	}
	return strings.TrimSpace(short(*m.Value, 4) + " " + m.Unit)
}

// ErrorText is the standard error as tables show it: two digits, empty if it is unknown.
func (m Measure) ErrorText() string {
	if m.StdErr == 0 {
		return ""
	}
	return strconv.FormatFloat(m.StdErr, 'g', 2, 64)
}

// meanings are the measurements in words.
var meanings = map[string]string{
	"kl":                    "KL divergence from the source as shipped, nats per token",
	"kl_float":              "the part of the weights: the same with float activations",
	"kl_decode":             "the same token by token, over the end of a window",
	"kl_arm_int8":           "what int8 activations add on arm64 in float32, from the package in float",
	"kl_half":               "what fp16 adds, from the package in float, nats per token",
	"kl_half_int8":          "what fp16 and int8 activations add together, as on CPUs of phones",
	"kl_median":             "KL divergence at half of the positions at most",
	"kl_p99":                "KL divergence at 99 % of the positions at most",
	"kl_max":                "KL divergence at the worst position",
	"kl_probe":              "KL divergence on calibration text that was left out",
	"kl_predicted":          "KL divergence that the budget predicted",
	"largest_activation":    "largest activation; fp16 holds up to 65504",
	"perplexity":            "perplexity as shipped",
	"perplexity_float":      "perplexity with float activations",
	"perplexity_half":       "perplexity in fp16, on the beginning of the text",
	"perplexity_half_float": "the same in float",
	"perplexity_source":     "perplexity of the source",
	"same_top_token":        "positions whose most likely next token is the source's",
	"scored_tokens":         "positions scored",
}

// Meaning is the measurement in words, or its name.
func (m Measure) Meaning() string {
	if text, ok := meanings[m.Name]; ok {
		return text
	}
	return m.Name
}
