package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/internal/synthetic/packed"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// serve makes a directory the repository org/model of a hub that the program asks, with an empty cache.
func serveHub(t *testing.T, dir string, sums map[string]string) *fakehub.Hub {
	t.Helper()
	h := fakehub.New(fakehub.Options{LFSFrom: 1 << 10})
	if _, err := h.Repo("org/model").CommitDir("main", dir, sums); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	for name, value := range map[string]string{
		"HF_ENDPOINT": h.Start(t).URL, "HF_HOME": home, "HF_HUB_CACHE": filepath.Join(home, "hub"), "HF_TOKEN": "", "HF_HUB_OFFLINE": "",
	} {
		t.Setenv(name, value)
	}
	return h
}

// weightsSent is the number of bytes of shards that a hub has served.
func weightsSent(h *fakehub.Hub) (n int64) {
	for name, total := range h.Stats().Files {
		if strings.HasSuffix(name, ".safetensors") {
			n += total.Sent
		}
	}
	return n
}

// planJSON runs plan --json and gives the only plan, without its name.
func planJSON(t *testing.T, args ...string) (plan map[string]any, remote plannedRemote) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(append([]string{"llmexport", "plan", "--json"}, args...), strings.NewReader(""), &stdout, &stderr); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr.String())
	}
	var all struct{ Plans []json.RawMessage }
	var r struct{ Remote plannedRemote }
	if err := json.Unmarshal(stdout.Bytes(), &all); err != nil || len(all.Plans) != 1 {
		t.Fatalf("%d plans, %v", len(all.Plans), err)
	}
	if err := json.Unmarshal(all.Plans[0], &plan); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all.Plans[0], &r); err != nil {
		t.Fatal(err)
	}
	// The times of an estimate depend on the moment.
	e, ok := plan["estimate"].(map[string]any)
	if seconds, _ := e["seconds"].(float64); !ok || seconds <= 0 {
		t.Errorf("estimate %v", e)
	}
	delete(plan, "estimate")
	delete(plan, "remote")
	delete(plan, "name")
	return plan, r.Remote
}

// largeHollow writes a checkpoint of twenty shards with tens of gigabytes of weights that are holes.
func largeHollow(t *testing.T) (dir string, bytes int64, sums map[string]string) {
	t.Helper()
	config := `{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","attention_bias":false,"attention_dropout":0.0,"head_dim":128,"hidden_act":"silu",
"hidden_size":5120,"initializer_range":0.02,"intermediate_size":25600,"max_position_embeddings":40960,"max_window_layers":64,"num_attention_heads":64,
"num_hidden_layers":64,"num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000,"sliding_window":null,
"tie_word_embeddings":false,"torch_dtype":"bfloat16","use_cache":true,"use_sliding_window":false,"vocab_size":151936}`
	src, err := checkpoint.New([]byte(config), 1)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := checkpoint.WriteHoles(dir, src.Tensors(), src.Size()/19); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		b, err := os.ReadFile(filepath.Join(tiny, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	shards, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(shards) < 20 {
		t.Fatalf("%d shards, %v", len(shards), err)
	}
	sums = map[string]string{}
	for i, s := range shards {
		sums[filepath.Base(s)] = fmt.Sprintf("%064x", i+1) // nobody reads so much to find out
	}
	return dir, src.Size(), sums
}

// A repository is planned by its headers: what is printed is that of a copy on the disk, and no weights are served.
func TestPlanRemote(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	large, size, sums := largeHollow(t)
	for _, c := range []struct {
		name, dir string
		sums      map[string]string
		set       string
		most      int64 // bytes that may be served of shards
	}{
		{"trained", tiny, nil, "quantize.block=auto", 200 << 10},
		{"tens of gigabytes", large, sums, "quantize.bits=4", 25 * 200 << 10},
		{"mxfp4", filepath.Join(families, "gpt_oss"), nil, "quantize.block=auto", 200 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := serveHub(t, c.dir, c.sums)
			want, _ := planJSON(t, c.dir, "--set", c.set)
			got, remote := planJSON(t, "hf://org/model@main", "--set", c.set)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-disk +hub)\n%s", d)
			}
			if n := weightsSent(h); n > c.most {
				t.Errorf("%d bytes of shards were served", n)
			}
			if remote.Read == 0 || remote.Download == 0 || remote.Held != 0 || c.sums != nil && remote.Download < size {
				t.Errorf("%+v of %d bytes", remote, size)
			}
			_, remote = planJSON(t, "hf://org/model", "--set", c.set, "--set", "fetch.keep=false")
			if remote.Held == 0 || remote.Held > remote.Download || c.sums != nil && remote.Held > size/7 {
				t.Errorf("streamed: %+v", remote)
			}
			t.Logf("read %d, download %d, held %d, served of shards %d", remote.Read, remote.Download, remote.Held, weightsSent(h))
		})
	}
}

// Variants that do not keep their source fetch it once each, which the plan says of each.
func TestPlanRemoteVariants(t *testing.T) {
	serveHub(t, tiny, nil)
	recipe := filepath.Join(t.TempDir(), "recipe.yaml")
	text := "version: 1\nname: a\nmodel: {repo: org/model}\nquantize: {block: auto}\nfetch: {keep: false}\nvariants: [{name: b, quantize: {bits: 8}}]\n"
	if err := os.WriteFile(recipe, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]int{"fetch.keep=false": 2, "fetch.keep=true": 0} {
		var stdout, stderr bytes.Buffer
		if code := run([]string{"llmexport", "plan", recipe, "--set", set}, strings.NewReader(""), &stdout, &stderr); code != 0 {
			t.Fatalf("exit %d: %s", code, stderr.String())
		}
		if n := strings.Count(stdout.String(), "note: with fetch.keep: false every variant fetches the shards again"); n != want {
			t.Errorf("%s: %d notes, want %d\n%s", set, n, want, stdout.String())
		}
	}
}

// A recipe for a repository names what its headers tell, as that of a copy on the disk does, and no weights are served.
func TestInitRemote(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	h := serveHub(t, tiny, nil)
	recipe := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		code := run(append([]string{"llmexport", "init", "-o", "-"}, args...), strings.NewReader(""), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	code, got, stderr := recipe("org/model")
	if code != 0 || !strings.Contains(got, "\n  repo: org/model\n") {
		t.Fatalf("exit %d: %s\n%s", code, stderr, got)
	}
	_, want, _ := recipe(tiny)
	about := func(s string) string { return strings.Split(s, "\n")[1] }
	block := func(s string) string {
		_, s, _ = strings.Cut(s, "\n  block: ")
		s, _, _ = strings.Cut(s, "\n")
		return s
	}
	if about(got) != about(want) || block(got) != block(want) || !strings.Contains(about(got), "layers, hidden") {
		t.Errorf("%q and %q, %q and %q", about(got), about(want), block(got), block(want))
	}
	if n := weightsSent(h); n == 0 || n > 200<<10 {
		t.Errorf("%d bytes of shards were served", n)
	}
	if code, _, stderr := recipe("org/none"); code != 1 || !strings.Contains(stderr, "no such repository") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// What cannot be planned without weights says so, and how much they are; --download fetches them.
func TestPlanNeedsWeights(t *testing.T) {
	codes := t.TempDir()
	if err := packed.Convert(codes, filepath.Join(families, "qwen3-untied"),
		packed.Options{Format: packed.GPTQ, Bits: 4, Group: 32, Symmetric: true, Scale: tensor.F16}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, dir, set, says string }{
		{"budget", filepath.Join(families, "qwen3-untied"), "quantize.budget.bpw=5", "measuring reads the weights"},
		{"codes", codes, "quantize.block=auto", "the matrices are quantized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := serveHub(t, c.dir, nil)
			args := []string{"llmexport", "plan", "hf://org/model", "--set", c.set, "--measure"}
			var stderr bytes.Buffer
			code := run(args, strings.NewReader(""), io.Discard, &stderr)
			if text := stderr.String(); code != 1 || !strings.Contains(text, c.says) || !strings.Contains(text, "would be downloaded") ||
				!strings.Contains(text, "--download") {
				t.Errorf("exit %d: %s", code, text)
			}
			if c.name == "budget" {
				return // takes minutes
			}
			before := weightsSent(h)
			want, _ := planJSON(t, c.dir, "--set", c.set)
			got, remote := planJSON(t, "hf://org/model", "--set", c.set, "--download")
			if d := cmp.Diff(want, got); d != "" || remote.Read != 0 {
				t.Errorf("%s %+v", d, remote)
			}
			if weightsSent(h) == before {
				t.Error("nothing was downloaded")
			}
		})
	}
}
