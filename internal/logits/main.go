// Command logits writes the logits of a package as this program computes them, for comparing with those of engines on other machines.
//
//	logits [-mode float|int8|half|half-int8|arm] [-prompt 84] PACKAGE IDS.json OUT.npy
//
// IDS.json is [[id, id, ...]], one window. Its first tokens come as a prompt and the others one by one; OUT.npy is float32 [1, tokens, vocabulary].
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// modes are the engine's: memory high or low, on x86, on arm64 at precision low (half) and on arm64 at precision normal (arm).
var modes = map[string]runtime.Options{
	"float": {}, "int8": {Mode: backend.Int8}, "half": {Half: true}, "half-int8": {Mode: backend.Int8, Half: true},
	"arm": {Mode: backend.Int8, Arm: kernel.ArmI8MM},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "logits:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("logits", flag.ContinueOnError)
	mode := flags.String("mode", "float", "what to compute as")
	prompt := flags.Int("prompt", 84, "tokens of the prompt")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o, ok := modes[*mode]
	if !ok || flags.NArg() != 3 || *prompt < 1 {
		return fmt.Errorf("mode %q and %d arguments; see the comment of this program", *mode, flags.NArg())
	}
	b, err := os.ReadFile(flags.Arg(1))
	if err != nil {
		return err
	}
	var windows [][]int32
	if err := json.Unmarshal(b, &windows); err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(1), err)
	}
	if len(windows) != 1 {
		return fmt.Errorf("%s: %d windows, want one", flags.Arg(1), len(windows))
	}
	p, err := runtime.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer p.Close()
	o.DynamicOption = p.Config.DynamicOption
	s, err := runtime.NewSession(p, cpu.Backend{}, o)
	if err != nil {
		return err
	}
	ids := windows[0]
	var out []byte
	for at := 0; at < len(ids); {
		n := min(max(*prompt-at, 1), len(ids)-at)
		l, err := s.Forward(context.Background(), ids[at:at+n])
		if err != nil {
			return err
		}
		if out, err = binary.Append(out, binary.LittleEndian, l); err != nil {
			return err
		}
		at += n
	}
	return os.WriteFile(flags.Arg(2), append(header(1, len(ids), p.Vocabulary()), out...), 0o644)
}

// header is that of an array of NumPy, version 1.0.
func header(shape ...int) []byte {
	text := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]"))
	text += strings.Repeat(" ", 127-10-len(text)) + "\n"
	return append([]byte{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, byte(len(text)), byte(len(text) >> 8)}, text...)
}
