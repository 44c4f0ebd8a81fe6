package plan

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A file is a conversation: an order in words key=value, which may span lines, then "----", then the plan or the
// error, up to an empty line.
//
//	checkpoint=  a small checkpoint of pipeline/arch, or
//	published=   a model known by its config.json; only the first layer is shown
//	body= table= specs
//	auto         AutoBlock
//	override=    pattern:field=value[,field=value]
func TestPlanGolden(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", t.Name(), "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(string(text), "\r\n", "\n")
			var got strings.Builder
			for _, part := range strings.Split(strings.TrimSpace(want), "\n\n") {
				order, _, _ := strings.Cut(part, "\n----")
				if got.Len() > 0 {
					got.WriteByte('\n')
				}
				fmt.Fprintf(&got, "%s\n----\n%s", order, answer(t, order))
			}
			if *update {
				if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func answer(t *testing.T, order string) string {
	var m *lower.Model
	var tensors []tensor.Info
	p := &quant.Policy{}
	short := false
	for _, word := range strings.Fields(order) {
		key, v, _ := strings.Cut(word, "=")
		switch key {
		case "checkpoint":
			model, src := checkpoint(t, v)
			m, tensors = model, src.Tensors()
		case "published":
			model, src := published(t, v, nil)
			m, tensors, short = model, src.Tensors(), true
		case "body":
			p.Default = spec(t, v)
		case "table":
			p.Table = spec(t, v)
		case "auto":
			p.AutoBlock = true
		case "override":
			p.Overrides = append(p.Overrides, override(t, v))
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	pl, err := New(m, tensors, p)
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), "\n", "\nerror: ") + "\n"
	}
	return describe(pl, short)
}

func spec(t *testing.T, v string) quant.Spec {
	s, err := quant.ParseSpec(v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func override(t *testing.T, v string) quant.Override {
	pattern, fields, _ := strings.Cut(v, ":")
	o := quant.Override{Match: regexp.MustCompile(pattern)}
	for _, f := range strings.Split(fields, ",") {
		key, v, _ := strings.Cut(f, "=")
		n, _ := strconv.Atoi(v)
		yes := v == "true"
		switch key {
		case "bits":
			o.Bits = &n
		case "block":
			o.Block = &n
		case "symmetric":
			o.Symmetric = &yes
		default:
			t.Fatalf("unknown field %q", f)
		}
	}
	return o
}

func describe(p *Plan, short bool) string {
	var b strings.Builder
	for it := range p.Items() {
		if short && strings.Contains(it.Source.Name, ".layers.") && !strings.Contains(it.Source.Name, ".layers.0.") {
			continue
		}
		fmt.Fprintf(&b, "%s %s %v %v", it.Slot.Name, it.Source.Name, it.Source.DType, it.Source.Shape)
		if it.Slot.Bias.Tensor != "" {
			fmt.Fprintf(&b, " bias %s", it.Slot.Bias.Tensor)
		}
		fmt.Fprintf(&b, "\n\t%s", it.Spec())
		if it.Choice.AutoFrom != 0 {
			fmt.Fprintf(&b, " (instead of blocks of %d)", it.Choice.AutoFrom)
		}
		if it.Matrix() && it.Choice.Override >= 0 {
			fmt.Fprintf(&b, " by override %d", it.Choice.Override)
		}
		at := it.Offset
		for _, piece := range []struct {
			name string
			n    int64
		}{{"header", it.Header}, {"codes", it.Codes}, {"alpha", it.Alpha}, {"bias", it.Bias}} {
			if piece.n > 0 {
				fmt.Fprintf(&b, "  %s %d+%d", piece.name, at, piece.n)
				at += piece.n
			}
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d items, %d bytes\n", len(p.Parts[0].Items), p.Bytes())
	fmt.Fprintf(&b, "lookup %+v\n", p.Lookup())
	p.Model.CacheElements = 256
	m := p.Memory()
	fmt.Fprintf(&b, "memory {Weights:%d Scales:%d PerToken:%d}\n", m.Weights, m.Scales, m.PerToken)
	for _, pack := range PackWidths {
		fmt.Fprintf(&b, "unsafe threads at pack %d: %v\n", pack, p.UnsafeThreads(pack))
	}
	return b.String()
}
