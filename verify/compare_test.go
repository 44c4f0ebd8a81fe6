package verify_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/verify"
)

// threeBits makes another package of tiny-qwen3.
func threeBits(t *testing.T) string {
	t.Helper()
	dir, err := stagetest.Export(t.Context(), t.TempDir(), tiny, "quantize: {bits: 3}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func openAll(t *testing.T, dirs ...string) []*runtime.Package {
	t.Helper()
	var all []*runtime.Package
	for _, d := range dirs {
		p, err := runtime.Open(d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		all = append(all, p)
	}
	return all
}

var sameEvaluation = cmp.Options{cmp.AllowUnexported(verify.Sample{}), cmpopts.IgnoreUnexported(verify.Evaluation{})}

// Packages compared together give the same bits as each alone, for any memory and number of threads.
func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	dirs := []string{goodPackage(t), threeBits(t)}
	var want []*verify.Evaluation
	var o verify.Options
	for _, d := range dirs {
		s := open(t, d, tiny)
		s.Options.Windows, s.Options.ScoreFrom = 3, 20
		e, err := verify.Evaluate(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		want, o = append(want, e), s.Options
	}
	if a, _ := want[0].Int8.KL.Mean(); a <= 0 {
		t.Errorf("4 bits diverge by %g", a)
	} else if b, _ := want[1].Int8.KL.Mean(); b < 2*a {
		t.Errorf("4 bits diverge by %g, 3 bits by %g", a, b)
	}
	source, packages := openSource(t, tiny, 1<<30), openAll(t, dirs...)
	for _, c := range []struct {
		threads int
		memory  int64
	}{{1, 1 << 30}, {3, 4 << 20}} {
		o.Threads, o.Memory = c.threads, c.memory
		got, err := verify.Compare(t.Context(), source, packages, o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, sameEvaluation); diff != "" {
			t.Errorf("%d threads, %d bytes (-alone +compared):\n%s", c.threads, c.memory, diff)
		}
	}
	if got, err := verify.Compare(t.Context(), source, nil, o); err != nil || len(got) != 0 {
		t.Errorf("no packages give %v, %v", got, err)
	}
}

// Positions before ScoreFrom are context: the results of the others do not change.
func TestScoreFrom(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	s := open(t, goodPackage(t), tiny)
	s.Options.Memory = 1 << 20 // tiles smaller than a window
	all, err := verify.Evaluate(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	const window, windows = 64, 2
	for _, from := range []int{1, 31, 60, 62} {
		s.Options.ScoreFrom = from
		got, err := verify.Evaluate(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name      string
			all, some []float64
		}{
			{"source", all.Source.Values(), got.Source.Values()},
			{"float", all.Float.NLL.Values(), got.Float.NLL.Values()},
			{"int8", all.Int8.KL.Values(), got.Int8.KL.Values()},
		} {
			var want []float64
			for w := range windows {
				want = append(want, c.all[w*(window-1)+from:(w+1)*(window-1)]...)
			}
			if !slices.Equal(c.some, want) {
				t.Errorf("%s from %d: %v, want %v", c.name, from, c.some, want)
			}
		}
		if diff := cmp.Diff(all.Decode, got.Decode, sameEvaluation); diff != "" {
			t.Errorf("from %d: the tokens fed one by one depend on it:\n%s", from, diff)
		}
	}
	for _, from := range []int{-1, window - 1, window} {
		s.Options.ScoreFrom = from
		if e, err := verify.Evaluate(t.Context(), s); err == nil {
			t.Errorf("from %d: %d positions", from, e.Source.Len())
		}
	}
}

func TestCompareRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	other, err := stagetest.Export(t.Context(), t.TempDir(), families+"qwen3-tied", "quantize: {block: 32}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	prefixed := edit(t, goodPackage(t))
	prefixed.file("tokenizer.mtok", func(b []byte) []byte {
		lines := bytes.SplitN(b, []byte("\n"), 4)
		if !bytes.HasSuffix(lines[1], []byte(" 0")) {
			t.Fatalf("counts are %q", lines[1])
		}
		lines[1] = append(bytes.TrimSuffix(lines[1], []byte("0")), '1')
		lines[2] = append(bytes.Clone(bytes.TrimRight(lines[2], " ")), " 7"...)
		return bytes.Join(lines, []byte("\n"))
	})
	s := open(t, goodPackage(t), tiny)
	for _, c := range []struct{ name, dir, want string }{
		{"vocabulary", other, "has a vocabulary of"},
		{"tokenizer", prefixed.dir, "encode the text differently"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := verify.Compare(t.Context(), s.Source, openAll(t, goodPackage(t), c.dir), s.Options)
			if got != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
