package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/fakeadb"
	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/internal/synthetic/packed"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestMain(m *testing.M) {
	programs := fakeadb.Programs()
	programs["llmexport"] = main
	testscript.Main(tidy{m}, programs)
}

// tidy removes what tests have shared.
type tidy struct{ *testing.M }

func (m tidy) Run() int {
	defer func() { os.RemoveAll(scratch) }()
	return m.M.Run()
}

// Directories of the repository, relative to this package.
const (
	families = "../../pipeline/arch/testdata" // small checkpoints with random weights
	tiny     = "../../testdata/tiny-qwen3"    // a small trained one
	// sentences are checkpoints that turn texts into vectors.
	sentences = "../../testdata/sentence"
)

// TestScript runs the stories in testdata/script. Each starts with copies of two checkpoints, qwen3 and llama,
// with $TINY, the place of the trained one, and with $FAMILIES, that of one of every family.
func TestScript(t *testing.T) { scripts(t, "testdata/script", nil) }

// TestLongScript runs the stories that take long.
func TestLongScript(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	scripts(t, "testdata/long", nil)
}

// scripts runs the stories in dir, with further directories in variables.
func scripts(t *testing.T, dir string, more map[string]string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			for from, to := range map[string]string{"qwen3-tied": "qwen3", "llama": "llama"} {
				if err := os.CopyFS(filepath.Join(e.WorkDir, to), os.DirFS(filepath.Join(families, from))); err != nil {
					return err
				}
			}
			dirs := map[string]string{"TINY": tiny, "FAMILIES": families, "SENTENCE": sentences}
			maps.Copy(dirs, more)
			for name, dir := range dirs {
				abs, err := filepath.Abs(dir)
				if err != nil {
					return err
				}
				e.Setenv(name, abs)
			}
			e.Values[hubKey{}] = &hubValue{}
			e.Setenv("HF_HUB_OFFLINE", "1")
			e.Setenv("HF_HUB_CACHE", filepath.Join(e.WorkDir, "hub"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit": cmdExit, "json": cmdJSON, "replace": cmdReplace, "once": cmdOnce, "interrupt": cmdInterrupt, "pack": cmdPack,
			"hollow": cmdHollow, "narrow": cmdNarrow,
			"hub": cmdHub, "crash": cmdCrash, "hold": cmdHold, "stores": cmdStores, "part": cmdPart,
		},
	})
}

// cmdExit is "exit CODE command args...": the command ends with that code.
func cmdExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE command args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var e *exec.ExitError
		if !errors.As(err, &e) {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// cmdPart is "part DIR NAME": the package in DIR gets a part of this name, a copy of its text model.
func cmdPart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: part DIR NAME")
	}
	ts.Check(stagetest.AddPart(context.Background(), ts.MkAbs(args[0]), args[1]))
}

// cmdJSON is "json FILE path=value...": the file is JSON with these values; a path is keys and indexes with dots.
// With "path=*" any value will do.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: json FILE path=value...")
	}
	var doc any
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &doc); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
	for _, a := range args[1:] {
		path, want, _ := strings.Cut(a, "=")
		v := doc
		for _, k := range strings.Split(path, ".") {
			switch x := v.(type) {
			case map[string]any:
				v = x[k]
			case []any:
				i, err := strconv.Atoi(k)
				if err != nil || i >= len(x) {
					ts.Fatalf("%s: no element %s of %d", path, k, len(x))
				}
				v = x[i]
			default:
				ts.Fatalf("%s: nothing at %s", path, k)
			}
		}
		if got := fmt.Sprint(v); v == nil || want != "*" && got != want {
			ts.Fatalf("%s is %s, want %s", path, got, want)
		}
	}
}

// cmdReplace is "replace FILE OLD NEW".
func cmdReplace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace FILE OLD NEW")
	}
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(text, args[1], args[2], 1)), 0o666))
}

// cmdOnce is "once FILE TEXT": the text is there exactly once.
func cmdOnce(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: once FILE TEXT")
	}
	if n := strings.Count(ts.ReadFile(args[0]), args[1]); n != 1 {
		ts.Fatalf("%q is %d times in %s", args[1], n, args[0])
	}
}

// cmdPack is "pack FROM TO GROUP": a copy of a checkpoint whose matrices are 4-bit codes of GPTQ with a scale for GROUP
// columns.
func cmdPack(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: pack FROM TO GROUP")
	}
	group, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(os.Mkdir(ts.MkAbs(args[1]), 0o777))
	o := packed.Options{Format: packed.GPTQ, Bits: 4, Group: group, Symmetric: true, Scale: tensor.F16}
	ts.Check(packed.Convert(ts.MkAbs(args[1]), ts.MkAbs(args[0]), o))
}

// cmdNarrow is "narrow FROM TO FORMAT": a copy of a checkpoint in fp8 or mxfp4.
func cmdNarrow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: narrow FROM TO FORMAT")
	}
	floats := filepath.Join(ts.MkAbs("."), ".floats")
	ts.Check(os.Mkdir(ts.MkAbs(args[1]), 0o777))
	ts.Check(os.Mkdir(floats, 0o777))
	defer os.RemoveAll(floats)
	n := packed.Narrow{Format: packed.Format(args[2]), Block: [2]int{32, 32}}
	ts.Check(n.Convert(ts.MkAbs(args[1]), floats, ts.MkAbs(args[0])))
}

// cmdHollow is "hollow FROM TO NAME=SHAPE...": a copy of a checkpoint whose weights are holes. A tensor NAME has another shape,
// 8,48,64 for example, or is added to the others, in BF16 unless the shape begins with another type: U8:8,2. Tensors of shape
// none are left out; their NAME may have stars.
func cmdHollow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: hollow FROM TO NAME=SHAPE...")
	}
	from, to := ts.MkAbs(args[0]), ts.MkAbs(args[1])
	src, err := safetensors.OpenDir(from)
	ts.Check(err)
	defer src.Close()
	tensors := slices.Clone(src.Tensors())
	for _, a := range args[2:] {
		name, text, _ := strings.Cut(a, "=")
		if text == "none" {
			n := len(tensors)
			tensors = slices.DeleteFunc(tensors, func(t tensor.Info) bool { ok, _ := path.Match(name, t.Name); return ok })
			if len(tensors) == n {
				ts.Fatalf("%s has no %s", args[0], name)
			}
			continue
		}
		old := slices.IndexFunc(tensors, func(t tensor.Info) bool { return t.Name == name })
		t := tensor.Info{Name: name, DType: tensor.BF16}
		if old >= 0 {
			t.DType = tensors[old].DType
			tensors = slices.Delete(tensors, old, old+1)
		}
		if dtype, dims, ok := strings.Cut(text, ":"); ok {
			t.DType, err = tensor.ParseDType(dtype)
			ts.Check(err)
			text = dims
		}
		for d := range strings.SplitSeq(text, ",") {
			n, err := strconv.ParseInt(d, 10, 64)
			ts.Check(err)
			t.Shape = append(t.Shape, n)
		}
		n, err := t.Shape.Elements()
		ts.Check(err)
		t.Size = n * t.DType.Size()
		tensors = append(tensors, t)
	}
	ts.Check(os.Mkdir(to, 0o777))
	ts.Check(checkpoint.WriteHoles(to, tensors, 1<<40))
	for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(to, name), b, 0o666))
	}
}

// interruptPatience is how long the program may take to begin and to end; a busy machine needs some of it.
const interruptPatience = time.Minute

// cmdInterrupt is "interrupt TEXT FILE command args...": interrupts the command once standard error holds TEXT, demands
// exit code 130, and leaves standard error in FILE.
func cmdInterrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: interrupt TEXT FILE command args...")
	}
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = environment(ts)
	pipe, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	kill := time.AfterFunc(interruptPatience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	var text strings.Builder
	lines := bufio.NewScanner(pipe)
	sent := false
	for lines.Scan() {
		fmt.Fprintln(&text, lines.Text())
		if !sent && strings.Contains(lines.Text(), args[0]) {
			sent = true
			ts.Check(cmd.Process.Signal(os.Interrupt))
		}
	}
	_, _ = io.Copy(io.Discard, pipe)
	err = cmd.Wait()
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text.String()), 0o666))
	var e *exec.ExitError
	if !errors.As(err, &e) || e.ExitCode() != exit.Interrupted {
		ts.Fatalf("ended with %v, want exit code %d\n%s", err, exit.Interrupted, text.String())
	}
}

// environment is that of a process started next to a script: the settings of the script that the program reads.
func environment(ts *testscript.TestScript) []string {
	env := os.Environ()
	for _, name := range []string{"LLMEXPORT_CACHE", "HF_ENDPOINT", "HF_HUB_CACHE", "HF_HUB_OFFLINE"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}
