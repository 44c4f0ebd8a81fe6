package verify_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/verify"
)

// withExperts adds unused ops to a package: a constant in the weight file, and two subgraphs with a matrix each. Their
// bytes are copies of a norm's and of two matrices of one shape.
func withExperts(e *edition) {
	e.t.Helper()
	w, err := os.ReadFile(e.path(mnn.WeightFile("")))
	if err != nil {
		e.t.Fatal(err)
	}
	copied := func(name, op string) manifest.Tensor {
		t := e.tensor(name)
		w = append(w, w[t.Offset:t.Offset+t.Size]...)
		t.Op, t.Offset = op, int64(len(w))-t.Size
		e.m.Tensors = append(e.m.Tensors, t)
		return t
	}
	constant := copied("layers.0.input_layernorm", "/constant")
	e.graph(func(g *mnn.Graph) {
		g.Tensors = append(g.Tensors, "constant")
		g.Ops = append(g.Ops, mnn.Op{
			Name: "/constant", Type: mnn.OpConst, Outputs: []int32{int32(len(g.Tensors) - 1)},
			Param: &mnn.Blob{Dims: []int32{int32(constant.Size / 4)}, DType: mnn.DTFloat, External: []int64{constant.Offset, constant.Size}},
		})
		for j := range 2 {
			_, like := op(e.t, g, fmt.Sprintf("/layers.%d/mlp/gate_proj/Linear", j))
			name := fmt.Sprintf("/expert/0_%d", j)
			t := copied(fmt.Sprintf("layers.%d.mlp.gate_proj", j), name+"/linear")
			c := *like.Param.(*mnn.Convolution)
			c.External = slices.Clone(c.External)
			c.External[0] = t.Offset
			g.Subgraphs = append(g.Subgraphs, mnn.Subgraph{
				Name: name, Inputs: []int32{0}, Outputs: []int32{1}, Tensors: []string{"x", "y"},
				Ops: []mnn.Op{
					{Name: name + "/x", Type: mnn.OpInput, Outputs: []int32{0}, Param: &mnn.Input{Dims: []int32{1, c.Inputs}, DType: mnn.DTFloat}},
					{Name: t.Op, Type: mnn.OpConvolution, Inputs: []int32{0}, Outputs: []int32{1}, Param: &c},
				},
			})
		}
	})
	e.file(mnn.WeightFile(""), func([]byte) []byte { return w })
}

// stored returns the bytes of an op in the weight file.
func (e *edition) stored(b []byte, op string) []byte {
	e.t.Helper()
	i := slices.IndexFunc(e.m.Tensors, func(t manifest.Tensor) bool { return t.Op == op })
	if i < 0 {
		e.t.Fatalf("no tensor of %q", op)
	}
	return b[e.m.Tensors[i].Offset:][:e.m.Tensors[i].Size]
}

// Constants and the matrices of experts are compared with the source like everything else.
func TestExpertsAndConstants(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  string
		detail string
	}{
		{"sound", func(*edition) {}, "", ""},
		{"a constant", func(e *edition) {
			e.file(mnn.WeightFile(""), func(b []byte) []byte {
				e.stored(b, "/constant")[4*17] ^= 1
				return b
			})
		}, "weights", "model.layers.0.input_layernorm.weight: element 17"},
		{"two experts swapped in the file", func(e *edition) {
			e.file(mnn.WeightFile(""), func(b []byte) []byte {
				x, y := e.stored(b, "/expert/0_0/linear"), e.stored(b, "/expert/0_1/linear")
				was := slices.Clone(x)
				copy(x, y)
				copy(y, was)
				return b
			})
		}, "weights", "mlp.gate_proj.weight: row"},
		{"two experts swapped in the graph", func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				x, y := g.Subgraphs[0].Ops[1].Param.(*mnn.Convolution), g.Subgraphs[1].Ops[1].Param.(*mnn.Convolution)
				x.External, y.External = y.External, x.External
			})
		}, "layout", "op /expert/0_0/linear reads"},
		{"a constant elsewhere", func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, o := op(e.t, g, "/constant")
				o.Param.(*mnn.Blob).External[0] -= 4
			})
		}, "layout", "op /constant reads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := edit(t, goodPackage(t))
			withExperts(e)
			c.damage(e)
			e.seal()
			s := open(t, e.dir, tiny)
			s.Options.Window = damagedWindow
			res, err := verify.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(res.Failed(), " "); got != c.fails {
				t.Errorf("failed %q, want %q", got, c.fails)
			}
			for _, x := range res.Checks {
				if x.Name == c.fails && !strings.Contains(x.Detail, c.detail) {
					t.Errorf("%s: %s", x.Name, x.Detail)
				}
			}
		})
	}
}

// A tensor that the model reads in other forms is covered when all of these are in the package.
func TestCoverageOfViews(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const fused = "model.layers.0.fused.weight"
	for _, c := range []struct {
		views []string
		want  bool
	}{
		{[]string{"model.norm.weight"}, true},
		{[]string{"model.norm.weight", "model.layers.0.input_layernorm.weight"}, true},
		{[]string{"model.norm.weight", "model.layers.0.fused.second"}, false},
		{nil, false},
	} {
		s := open(t, goodPackage(t), tiny)
		s.Options.Window = damagedWindow
		s.Source.Tensors = &more{s.Source.Tensors, fused}
		s.Source.Model.Claimed[fused] = "weight"
		for _, v := range c.views {
			s.Source.Model.Views[v] = []string{fused}
		}
		res, err := verify.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range res.Checks {
			if x.Name == "coverage" && (x.Passed != c.want || !c.want && !strings.HasSuffix(x.Detail, ": "+fused)) {
				t.Errorf("%v: %v, %s", c.views, x.Passed, x.Detail)
			}
		}
	}
}
