package lower

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/mnn"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// describe makes the Decoder of one of the small checkpoints of pipeline/arch, cut to two layers and with
// other keys of config.json changed.
func describe(t testing.TB, name string, change map[string]any) *arch.Decoder {
	t.Helper()
	d := describeWhole(t, name, change)
	d.Layers = d.Layers[:min(2, len(d.Layers))]
	return d
}

// describeWhole is describe with all layers.
func describeWhole(t testing.TB, name string, change map[string]any) *arch.Decoder {
	t.Helper()
	dir := filepath.Join("..", "arch", "testdata", name)
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	for k, v := range change {
		config[k] = v
	}
	if text, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	src, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m, err := arch.Describe(text, src.Tensors(), arch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Text
}

// The listing has one line per op, which names tensors by the ops that write them, and one line per slot.
func TestClassicGolden(t *testing.T) {
	for _, name := range []string{"qwen3-tied", "qwen2-untied", "llama"} {
		t.Run(name, func(t *testing.T) {
			m, err := Classic(describe(t, name, nil), Options{})
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, listing(m))
		})
	}
}

// compareGolden compares with the file of the test's name.
func compareGolden(t *testing.T, got string) {
	t.Helper()
	path := filepath.Join("testdata", t.Name()+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.ReplaceAll(string(want), "\r\n", "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func listing(m *Model) string {
	var b bytes.Buffer
	g := m.Parts[0].Graph
	g.Expand()
	listOps(&b, "", g.Ops, g.Tensors)
	for i := range g.Subgraphs {
		s := &g.Subgraphs[i]
		fmt.Fprintf(&b, "subgraph %s(%s) -> %s\n", s.Name, s.Tensors[s.Inputs[0]], s.Tensors[s.Outputs[0]])
		listOps(&b, "  ", s.Ops, s.Tensors)
	}
	fmt.Fprintf(&b, "outputs %v\n\n", g.Outputs)
	for _, s := range m.Parts[0].Slots {
		fmt.Fprintf(&b, "%s %s %s [%d %d]", [...]string{"linear", "norm", "table", "const"}[s.Kind], s.Name, s.Weight.Tensor, s.Weight.Rows, s.Weight.Cols)
		if s.Bias.Tensor != "" {
			fmt.Fprintf(&b, " bias %s [%d]", s.Bias.Tensor, s.Bias.Rows)
		}
		if s.Fine {
			b.WriteString(" fine")
		}
		if s.Table {
			b.WriteString(" table")
		}
		if s.Lookup {
			b.WriteString(" lookup")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func listOps(b *bytes.Buffer, indent string, ops []mnn.Op, tensors []string) {
	for i := range ops {
		op := &ops[i]
		var in []string
		for _, t := range op.Inputs {
			in = append(in, tensors[t])
		}
		fmt.Fprintf(b, "%s%s %v(%s)%s", indent, op.Name, op.Type, strings.Join(in, ", "), parameters(op.Param))
		for _, t := range op.Outputs {
			if tensors[t] != op.Name {
				fmt.Fprintf(b, " -> %s", tensors[t])
			}
		}
		b.WriteByte('\n')
	}
}

// parameters prints what is not zero, and long constants by their shape.
func parameters(p mnn.Param) string {
	if p, ok := p.(*mnn.Blob); ok && len(p.Float32s) > 1 {
		return fmt.Sprintf(" %v%v", p.DType, p.Dims)
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		panic(err)
	}
	for k, v := range fields {
		if v == nil || v == 0. || v == false {
			delete(fields, k)
		}
	}
	switch p := p.(type) {
	case *mnn.Input:
		fields["DType"] = p.DType.String()
	case *mnn.Blob:
		fields["DType"] = p.DType.String()
	case *mnn.Binary:
		fields["Op"], fields["T"] = p.Op.String(), p.T.String()
	case *mnn.Unary:
		fields["Op"], fields["T"] = p.Op.String(), p.T.String()
	case *mnn.Cast:
		fields["From"], fields["To"] = p.From.String(), p.To.String()
	case *mnn.Range:
		fields["T"] = p.T.String()
	case *mnn.Convert:
		fields["Source"], fields["Dest"] = p.Source.String(), p.Dest.String()
	}
	if text, err = json.Marshal(fields); err != nil {
		panic(err)
	}
	return " " + strings.NewReplacer(`"`, "", ":", "=", ",", " ").Replace(string(text))
}
