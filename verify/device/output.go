package device

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// demoOutput is what llm_demo prints for one prompt.
type demoOutput struct {
	// text is the continuation, and a line feed if the model ended it.
	text string
	// timed reports that the table of times was found; the rest is 0 otherwise.
	timed                bool
	promptTokens, tokens int
	prefill, decode      float64 // tokens per second
}

// OutputError reports that a program of the engine printed something unknown, so that nothing can be concluded from it.
type OutputError struct{ program, reason, output string }

func (e *OutputError) Error() string {
	return fmt.Sprintf("the output of %s was not understood: %s; it ended with %q", e.program, e.reason, shorten(e.output))
}

// Hint says which releases are known.
func (e *OutputError) Hint() string {
	return "known are the programs of MNN 3.5.0, 3.6.0 and 3.6.1, built without time traces (MNN_OPEN_TIME_TRACE)"
}

// rule is a line of number signs, above and below the table of times.
var rule = regexp.MustCompile(`(?m)^#{20,}$`)

// parseDemo reads the standard output of llm_demo. Releases 3.5.0 to 3.6.1 print
//
//	config path is CONFIG
//	(messages about the device, loading and tuning)
//	prompt file is PROMPT
//	(the continuation)
//	#################################
//	(the table: lines of the form "name = value unit")
//	##################################
//
// Builds with MNN_USE_LOGCAT print the messages and the table to the log of Android, which is the last argument.
func parseDemo(out []byte, config, prompt, log string) (*demoOutput, error) {
	bad := func(format string, args ...any) (*demoOutput, error) {
		return nil, &OutputError{demoProgram, fmt.Sprintf(format, args...), string(out)}
	}
	head, body, ok := bytes.Cut(out, []byte("prompt file is "+prompt+"\n"))
	if !bytes.HasPrefix(out, []byte("config path is "+config+"\n")) {
		return bad("it does not begin with the path of the configuration")
	}
	if !ok {
		if reason := loadFailure(string(head) + log); reason != "" {
			return nil, &engineError{demoProgram, reason}
		}
		return bad("it does not name the file of prompts")
	}
	d := &demoOutput{}
	var table string
	if d.text, table, ok = cutTable(string(body)); !ok {
		if strings.Contains(d.text, " tokens num") || rule.MatchString(d.text) {
			return bad("its table is not whole, or has another form")
		}
		if _, table, ok = cutTable("\n" + log); !ok {
			return d, nil
		}
	}
	if reason := d.parseTable(table); reason != "" {
		return bad("%s", reason)
	}
	d.timed = true
	return d, nil
}

// cutTable splits a text that ends with a table between two rules. Without one it returns the text and false.
func cutTable(s string) (text, table string, ok bool) {
	rules := rule.FindAllStringIndex(s, -1)
	if len(rules) < 2 {
		return s, "", false
	}
	first, last := rules[len(rules)-2], rules[len(rules)-1]
	if strings.TrimSpace(s[last[1]:]) != "" || first[0] == 0 {
		return s, "", false
	}
	return s[:first[0]-1], s[first[1]:last[0]], true
}

// parseTable reads the table of times and returns what is wrong with it.
func (d *demoOutput) parseTable(table string) string {
	values := map[string]string{}
	for line := range strings.Lines(table) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, " = ")
		if _, twice := values[name]; !ok || twice {
			return fmt.Sprintf("the table has the line %q", line)
		}
		values[name] = value
	}
	for _, f := range []struct {
		name string
		into *int
	}{{"prompt tokens num", &d.promptTokens}, {"decode tokens num", &d.tokens}} {
		n, err := strconv.Atoi(values[f.name])
		if err != nil || n < 0 {
			return fmt.Sprintf("%q is %q", f.name, values[f.name])
		}
		*f.into = n
	}
	for _, f := range []struct {
		name string
		into *float64
	}{{"prefill speed", &d.prefill}, {"decode speed", &d.decode}} {
		number, ok := strings.CutSuffix(values[f.name], " tok/s")
		v, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil || v < 0 {
			return fmt.Sprintf("%q is %q", f.name, values[f.name])
		}
		if !math.IsInf(v, 0) && !math.IsNaN(v) { // of a time that rounds to 0
			*f.into = v
		}
	}
	return ""
}

// loadFailure returns the messages of an engine that could not load a package, or an empty string.
func loadFailure(text string) string {
	failed := false
	var messages []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		failed = failed || line == "LLM init error" || line == "Load LLM error"
		if m, ok := strings.CutPrefix(line, "[Error]: "); ok {
			messages = append(messages, m)
		}
	}
	switch {
	case !failed:
		return ""
	case len(messages) == 0:
		return "the engine could not load the package"
	}
	return "the engine could not load the package: " + strings.Join(messages, "; ")
}

var perplexityLine = regexp.MustCompile(`(?m)^Perplexity: (\S+)\r?$`)

// parsePerplexity reads the output of ppl_eval, which ends with "Perplexity: " and a number. The engine's messages may be
// in the log instead.
func parsePerplexity(out []byte, log string) (float64, error) {
	text := string(out)
	if !perplexityLine.MatchString(text) {
		text = log
	}
	m := perplexityLine.FindAllStringSubmatch(text, -1)
	if len(m) == 0 {
		if reason := loadFailure(string(out) + log); reason != "" {
			return 0, &engineError{perplexityProgram, reason}
		}
	}
	if len(m) != 1 {
		return 0, &OutputError{perplexityProgram, fmt.Sprintf("it has %d lines with a perplexity", len(m)), string(out)}
	}
	v, err := strconv.ParseFloat(m[0][1], 64)
	if err != nil {
		return 0, &OutputError{perplexityProgram, "the perplexity is no number", string(out)}
	}
	return v, nil
}
