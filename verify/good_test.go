package verify_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/verify"
)

// TestAllStrings: the check tokenizer passes on all of its strings, of which other tests take a few.
func TestAllStrings(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	s := open(t, goodPackage(t), tiny)
	s.Options.Checks.Tokenizer.Strings, s.Options.Windows = 0, 1
	res, err := verify.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(res.Checks, func(c manifest.Check) bool { return c.Name == "tokenizer" })
	if i < 0 || !res.Checks[i].Passed || res.Checks[i].Value["plain"] != 13475 || res.Checks[i].Value["hard"] != 17633 {
		t.Errorf("checks %+v", res.Checks)
	}
}

// Every check passes, and none is skipped, on a good package.
func TestGood(t *testing.T) {
	s := open(t, goodPackage(t), tiny)
	res, err := verify.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range res.Checks {
		names = append(names, c.Name)
		t.Run(c.Name, func(t *testing.T) {
			t.Log(c.Detail)
			if !c.Passed || c.Skipped {
				t.Errorf("passed %v, skipped %v", c.Passed, c.Skipped)
			}
		})
	}
	if diff := cmp.Diff(verify.Names(), names); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	checkDivergence(t, res, s.Options.TextName)
	// Two windows of 64 tokens have 63 targets each.
	if n := res.Evaluation.Int8.NLL.Len(); n != 126 {
		t.Errorf("%d tokens scored, want 126", n)
	}
	if n := res.Evaluation.DecodeGap.Len(); n != 8 {
		t.Errorf("%d tokens decoded, want 8", n)
	}
	sealable(t, s.Manifest, res)

	// The package records the same.
	m, err := manifest.Open(s.Package.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Verified {
		t.Error("the manifest does not say that the package was verified")
	}
	for name, want := range m.Metrics {
		if got := res.Metrics[name]; got != want {
			t.Errorf("%s: measured %v, the manifest says %v", name, got, want)
		}
	}
}

// Results do not depend on the number of threads.
// checkDivergence compares the description for reports with the metrics of the same positions.
func checkDivergence(t *testing.T, res *verify.Result, text string) {
	t.Helper()
	d := res.Divergence
	if d == nil || d.Text != text || d.Scored != 126 || d.Windows != 2 || len(d.Passages) == 0 || len(d.Positions) == 0 {
		t.Fatalf("divergence %+v", d)
	}
	if last := d.Shares[len(d.Shares)-1]; last.Share != 1 || last.KL != res.Metrics["kl_max"].Value || d.Passages[0].KL != last.KL {
		t.Errorf("largest %+v, passage %g, metric %g", last, d.Passages[0].KL, res.Metrics["kl_max"].Value)
	}
	for _, p := range d.Passages {
		if p.Before == "" || len(p.Source) == 0 || len(p.Source) != len(p.Package) || p.Source[0].Probability > 1 {
			t.Errorf("passage %+v", p)
		}
	}
	mean := 0.0
	for _, r := range d.Positions {
		mean += r.Mean * float64(r.To-r.From+1) / 63
	}
	if want := res.Metrics["kl"].Value; mean < want*(1-1e-9) || mean > want*(1+1e-9) {
		t.Errorf("the mean over positions is %g, the metric %g", mean, want)
	}
	if len(res.Matrices) == 0 || res.Matrices[0].WeightError <= 0 || res.Matrices[0].WeightError > 0.1 {
		t.Errorf("matrices %+v", res.Matrices)
	}
}

func TestThreads(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	var first map[string]manifest.Metric
	for _, n := range []int{1, 3} {
		s := open(t, goodPackage(t), tiny)
		s.Options.Window, s.Options.Threads = damagedWindow, n
		res, err := verify.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = res.Metrics
		}
		if diff := cmp.Diff(first, res.Metrics); diff != "" {
			t.Errorf("1 and %d threads (-1 +%d):\n%s", n, n, diff)
		}
	}
}

// Every family's random checkpoint, in 16 bits, computes what the reference computes.
func TestFamilies(t *testing.T) {
	for _, name := range []string{"llama-bias", "llama3-rope", "qwen2-untied"} {
		t.Run(name, func(t *testing.T) {
			dir, err := stagetest.Export(t.Context(), t.TempDir(), families+name, "quantize: {bits: 16}\nverify: {enabled: false}")
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, dir, families+name)
			// Random weights know nothing of the text.
			s.Options.Bits, s.Options.Checks.Perplexity.MaxSource, s.Options.Window = 16, new(1e4), 32
			res, err := verify.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if f := res.Failed(); len(f) > 0 {
				for _, c := range res.Checks {
					t.Logf("%s: %s", c.Name, c.Detail)
				}
				t.Errorf("failed: %v", f)
			}
		})
	}
}

// A matrix with a bias, and a table that no op reads, are compared too.
func TestUntied(t *testing.T) {
	dir, err := stagetest.Export(t.Context(), t.TempDir(), families+"qwen2-untied", "quantize: {block: 32}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		want   string
	}{
		{"good", func(*edition) {}, ""},
		{"bias", func(e *edition) {
			e.span("layers.0.self_attn.k_proj", func(b []byte) { b[len(b)-4*7] ^= 1 })
		}, "model.layers.0.self_attn.k_proj.bias: element"},
		{"table", func(e *edition) {
			e.span("embed_tokens", func(b []byte) { b[1000] ^= 0x80 })
		}, "model.embed_tokens.weight: row 15: weight 40 is"},
		{"head", func(e *edition) {
			e.span("lm_head", func(b []byte) { b[1000] ^= 0x80 })
		}, "lm_head.weight: row"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := edit(t, dir)
			c.damage(e)
			e.seal()
			s := open(t, e.dir, families+"qwen2-untied")
			s.Options.Window, s.Options.Checks.Perplexity.MaxSource = 16, new(1e4)
			res, err := verify.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(res.Checks, func(c manifest.Check) bool { return c.Name == "weights" })
			if w := res.Checks[i]; w.Passed != (c.want == "") || !strings.Contains(w.Detail, c.want) {
				t.Errorf("%v: %s", w.Passed, w.Detail)
			}
			if f := res.Failed(); c.want == "" && len(f) > 0 {
				t.Errorf("failed: %v", f)
			}
		})
	}
}

// Without the source, or without a manifest, the checks that need neither run, and the others are skipped.
func TestLess(t *testing.T) {
	run := func(t *testing.T, s *verify.Subject) (passed, skipped []string) {
		s.Options.Window = damagedWindow
		res, err := verify.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range res.Checks {
			switch {
			case c.Skipped:
				skipped = append(skipped, c.Name)
			case c.Passed:
				passed = append(passed, c.Name)
			default:
				t.Errorf("%s: %s", c.Name, c.Detail)
			}
		}
		return passed, skipped
	}
	t.Run("no source", func(t *testing.T) {
		passed, _ := run(t, open(t, goodPackage(t), ""))
		if diff := cmp.Diff([]string{"layout", "perplexity", "decode", "positions", "activations", "golden"}, passed); diff != "" {
			t.Errorf("passed (-want +got):\n%s", diff)
		}
	})
	if testing.Short() {
		return
	}
	t.Run("no manifest", func(t *testing.T) {
		s := open(t, goodPackage(t), tiny)
		s.Manifest = nil
		_, skipped := run(t, s)
		if diff := cmp.Diff([]string{"layout", "coverage", "weights", "graph", "layers", "golden"}, skipped); diff != "" {
			t.Errorf("skipped (-want +got):\n%s", diff)
		}
	})
}

// A package compared with a checkpoint that it was not made from fails, and nothing panics.
func TestAnotherSource(t *testing.T) {
	random, err := stagetest.Export(t.Context(), t.TempDir(), families+"qwen3-tied", "quantize: {block: 32}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, dir, source string }{
		{"smaller", goodPackage(t), families + "qwen3-tied"},
		{"larger", random, tiny},
		{"same shapes", random, families + "qwen3-untied"},
		{"another family", random, families + "qwen2-tied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, c.dir, c.source)
			s.Options.Window = damagedWindow
			s.Package.Config.MaxPositions = 0 // no matter here
			res, err := verify.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			// Random weights are small: their layers and logits are close to each other whatever they are.
			for _, want := range []string{"weights", "graph"} {
				if !slices.Contains(res.Failed(), want) {
					t.Errorf("%s did not fail: %v", want, res.Failed())
				}
			}
			sealable(t, s.Manifest, res)
		})
	}
}

// A text that is too short for a window is an error of each check that needs one, never a panic.
func TestShortText(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, text := range []string{"", "a", "a b c d"} {
		s := open(t, goodPackage(t), tiny)
		s.Options.Text = text
		res, err := verify.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(res.Checks, func(c manifest.Check) bool { return c.Name == "kl" })
		if c := res.Checks[i]; c.Passed || !strings.Contains(c.Detail, "too few for a window of 64") {
			t.Errorf("%q: %+v", text, c)
		}
	}
}

// Names are unique words, and every check of the table has a sentence of documentation.
func TestTable(t *testing.T) {
	names := verify.Names()
	if len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
		t.Errorf("names are not unique: %v", names)
	}
	docs := map[string]string{} // by type
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				for _, s := range n.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						docs[s.Name.Name] = n.Doc.Text()
					}
				}
			}
			return true
		})
	}
	for i, c := range new(verify.Checks).All() {
		typ := strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", c), "*"), "verify.")
		if doc := docs[typ]; !strings.HasPrefix(doc, typ) || !strings.HasSuffix(strings.TrimSpace(doc), ".") {
			t.Errorf("check %s: type %s has no sentence that begins with its name: %q", names[i], typ, doc)
		}
	}
}

// Golden files that lack required fields are rejected.
func TestParseGoldens(t *testing.T) {
	good := `{"provenance":"p","outputs":[{"prompt":[1,2],"output":[3],"top_logits":[{"token":3,"value":2.5}]}]}`
	g, err := verify.ParseGoldens([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := []verify.Golden{{Prompt: []int32{1, 2}, Output: []int32{3}, TopLogits: []manifest.Logit{{Token: 3, Value: 2.5}}, Provenance: "p"}}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "{", "[]", "{}", `{"provenance":"p"}`, `{"outputs":[{"prompt":[1]}]}`, `{"provenance":"p","outputs":[{"output":[1]}]}`, `{"provenance":"p","outputs":[{"prompt":[1e9999]}]}`} {
		if g, err := verify.ParseGoldens([]byte(bad)); err == nil || g != nil {
			t.Errorf("%s: %v, %v", bad, g, err)
		}
	}
}
