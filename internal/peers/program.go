package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// speed is the result of a run, in tokens a second.
type speed struct{ prefill, decode float64 }

// program is one that measures itself.
type program struct {
	name        string
	path, model string
	// runs gives the command lines that a measurement takes; result is a file that one may write instead of printing.
	runs func(model, result string, threads int) [][]string
	// parse reads what one of them printed or wrote, and fills in the speeds that it holds.
	parse func(output []byte, s *speed) error
}

// measure runs the program in dir.
func (p *program) measure(ctx context.Context, dir string, threads int) (speed, error) {
	var s speed
	for _, args := range p.runs(p.model, filepath.Join(dir, "result.json"), threads) {
		out, err := p.run(ctx, dir, args)
		if err != nil {
			return s, err
		}
		if err := p.parse(out, &s); err != nil {
			return s, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, tail(out))
		}
	}
	for _, v := range []float64{s.prefill, s.decode} {
		if !(v > 0) || math.IsInf(v, 0) {
			return s, fmt.Errorf("speeds of %v and %v tokens a second", s.prefill, s.decode)
		}
	}
	return s, nil
}

// run gives the file result.json if the program writes one, and its standard output otherwise.
func (p *program) run(ctx context.Context, dir string, args []string) ([]byte, error) {
	result := filepath.Join(dir, "result.json")
	if err := os.RemoveAll(result); err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", p.path, strings.Join(args, " "), err, tail(append(stdout.Bytes(), stderr.Bytes()...)))
	}
	if b, err := os.ReadFile(result); err == nil {
		return b, nil
	}
	return stdout.Bytes(), nil
}

// tail is the end of an output, for an error.
func tail(b []byte) string {
	const most = 1000
	return string(bytes.TrimSpace(b[max(0, len(b)-most):]))
}

// ours is this program: one repetition after one that does not count, as in llm_bench.
func ours(path, pkg string) program {
	return program{
		name: "llmexport", path: path, model: pkg,
		runs: func(model, _ string, threads int) [][]string {
			return [][]string{{
				"bench", model, "-p", strconv.Itoa(prompt), "-n", strconv.Itoa(decode), "-t", strconv.Itoa(threads), "-r", "1", "--json",
			}}
		},
		parse: parseOurs,
	}
}

func parseOurs(b []byte, s *speed) error {
	type rate struct {
		TokensPerSecond struct {
			Median float64 `json:"median"`
		} `json:"tokens_per_second"`
	}
	var doc struct {
		Prompt, Decode, Depth int
		Results               []struct {
			Prefill rate `json:"prefill"`
			Decode  rate `json:"decode"`
		} `json:"results"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return err
	}
	if len(doc.Results) != 1 || doc.Prompt != prompt || doc.Decode != decode || doc.Depth != prompt {
		return fmt.Errorf("%d results for %d and %d tokens at depth %d", len(doc.Results), doc.Prompt, doc.Decode, doc.Depth)
	}
	s.prefill, s.decode = doc.Results[0].Prefill.TokensPerSecond.Median, doc.Results[0].Decode.TokensPerSecond.Median
	return nil
}

// engine is MNN's llm_bench at memory low (its default) and precision low. Without -p 0 -n 0 it would measure its default
// lengths, too. The ± of its table is not ASCII and its columns change with the options, so the JSON file it is.
func engine(path, pkg string) program {
	return program{
		name: "MNN", path: path, model: pkg,
		runs: func(model, result string, threads int) [][]string {
			return [][]string{{
				"-m", filepath.Join(model, "config.json"), "-a", "cpu", "-c", "2", "-t", strconv.Itoa(threads),
				"-p", "0", "-n", "0", "-pg", fmt.Sprintf("%d,%d", prompt, decode), "-rep", "1", "-j", result,
			}}
		},
		parse: parseEngine,
	}
}

func parseEngine(b []byte, s *speed) error {
	var doc struct {
		Results []struct {
			Type     string  `json:"type"`
			Prompt   int     `json:"prompt_len"`
			Generate int     `json:"generate_len"`
			Prefill  float64 `json:"prefill_tps"`
			Decode   float64 `json:"decode_tps"`
		} `json:"results"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return fmt.Errorf("no JSON of llm_bench: %w", err)
	}
	for _, r := range doc.Results {
		if r.Type == "prefill_and_decode" && r.Prompt == prompt && r.Generate == decode {
			s.prefill, s.decode = r.Prefill, r.Decode
			return nil
		}
	}
	return fmt.Errorf("none of %d results is of %d and %d tokens", len(doc.Results), prompt, decode)
}

// llamaCPP is llama.cpp's llama-bench, which measures prefill and decode in runs of their own.
func llamaCPP(path, gguf string) program {
	return program{
		name: "llama.cpp", path: path, model: gguf,
		runs: func(model, _ string, threads int) [][]string {
			common := []string{"-m", model, "-t", strconv.Itoa(threads), "-o", "json", "-r", "1"}
			return [][]string{
				append(common[:len(common):len(common)], "-p", strconv.Itoa(prompt), "-n", "0"),
				append(common[:len(common):len(common)], "-p", "0", "-n", strconv.Itoa(decode), "-d", strconv.Itoa(prompt)),
			}
		},
		parse: parseLlamaCPP,
	}
}

func parseLlamaCPP(b []byte, s *speed) error {
	var doc []struct {
		Prompt   int     `json:"n_prompt"`
		Generate int     `json:"n_gen"`
		Depth    int     `json:"n_depth"`
		Rate     float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return fmt.Errorf("no JSON of llama-bench: %w", err)
	}
	for _, r := range doc {
		switch {
		case r.Prompt == prompt && r.Generate == 0 && r.Depth == 0:
			s.prefill = r.Rate
			return nil
		case r.Prompt == 0 && r.Generate == decode && r.Depth == prompt:
			s.decode = r.Rate
			return nil
		}
	}
	return fmt.Errorf("none of %d results is of %d tokens, or %d at depth %d", len(doc), prompt, decode, prompt)
}
