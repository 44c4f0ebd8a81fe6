package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// study lists the packages to make and measure.
type study struct {
	llmexport, checkpoint, text, out, method, svg string
	set, points, judge                            []string
	windows, window, scoreFrom                    int
	packages                                      []wanted
}

// row is a package of the table. Numbers are nil where logits are not finite.
type row struct {
	Name       string   `json:"name"`
	Dir        string   `json:"dir"`
	Bytes      int64    `json:"bytes"`
	KL         *float64 `json:"kl"`
	KLFloat    *float64 `json:"kl_float"`
	Perplexity *float64 `json:"perplexity"`
	Front      bool     `json:"front"`
	// judged is the divergence that the judge measures with float and with int8 activations.
	judged [2]float64
}

// run makes the packages and measures them, smallest first.
func (s *study) run(ctx context.Context) ([]row, error) {
	var dirs []string
	for i, w := range s.packages {
		fmt.Fprintf(os.Stderr, "package %d of %d: %s\n", i+1, len(s.packages), w.name)
		recipe, err := s.writeRecipe(w)
		if err != nil {
			return nil, err
		}
		args := []string{"run", recipe, "--cache", filepath.Join(s.out, "cache"), "--set", "quantize.method=" + s.method}
		for _, x := range s.set {
			args = append(args, "--set", x)
		}
		if _, err := output(ctx, s.llmexport, args...); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		dirs = append(dirs, s.dir(w))
	}
	rows, err := s.compare(ctx, dirs)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		for j, memory := range memories {
			if len(s.judge) == 0 {
				break
			}
			fmt.Fprintf(os.Stderr, "judge %d of %d: %s, memory %s\n", i+1, len(rows), rows[i].Name, memory)
			if rows[i].judged[j], err = s.ask(ctx, rows[i].Dir, memory); err != nil {
				return nil, fmt.Errorf("%s: %w", rows[i].Name, err)
			}
		}
	}
	return rows, nil
}

// memories are the engine's modes that the judge runs: weights in float, and activations in int8.
var memories = [2]string{"high", "low"}

// protocol are the flags that llmexport compare and the judge share.
func (s *study) protocol() []string {
	args := []string{"--windows", strconv.Itoa(s.windows), "--window", strconv.Itoa(s.window), "--score-from", strconv.Itoa(s.scoreFrom)}
	if s.text != "" {
		args = append(args, "--text", s.text)
	}
	return args
}

func (s *study) compare(ctx context.Context, dirs []string) ([]row, error) {
	args := append([]string{"compare", "--source", s.checkpoint, "--json"}, s.protocol()...)
	if s.svg != "" {
		args = append(args, "--svg", s.svg)
	}
	for _, p := range s.points {
		args = append(args, "--point", p)
	}
	out, err := output(ctx, s.llmexport, append(args, dirs...)...)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Packages []row `json:"packages"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		return nil, fmt.Errorf("llmexport compare: %w", err)
	}
	if len(doc.Packages) != len(dirs) {
		return nil, fmt.Errorf("llmexport compare measured %d packages of %d", len(doc.Packages), len(dirs))
	}
	return doc.Packages, nil
}

// ask lets the judge measure a package, and returns its divergence in nats.
func (s *study) ask(ctx context.Context, dir, memory string) (float64, error) {
	args := append(append([]string{}, s.judge[1:]...), dir, s.checkpoint)
	out, err := output(ctx, s.judge[0], append(append(args, s.protocol()...), "--memory", memory, "--json")...)
	if err != nil {
		return 0, err
	}
	// The output of an engine comes before the result.
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var doc struct {
		KLD *float64 `json:"kld"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &doc); err != nil || doc.KLD == nil {
		return 0, fmt.Errorf("the judge printed no {\"kld\": ...}: %s", tail(out))
	}
	return *doc.KLD, nil
}

// output runs a program and returns what it prints.
func output(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		return nil, fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, tail(append(stdout.Bytes(), stderr.Bytes()...)))
	}
	return stdout.Bytes(), nil
}

// tail is the end of an output, for an error.
func tail(b []byte) string {
	const most = 1000
	return string(bytes.TrimSpace(b[max(0, len(b)-most):]))
}
