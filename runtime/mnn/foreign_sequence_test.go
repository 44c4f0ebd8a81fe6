package mnn

import "testing"

// sequenceParam reads the parameter of an op of experts or recurrences from a dump.
func (d *dumpOp) sequenceParam(t *testing.T, read func(any)) Param {
	t.Helper()
	switch d.MainType {
	case "Permute":
		var m Permute
		read(&m)
		return &m
	case "ReductionParam":
		var m struct {
			Operation, DType string
			Dim              []int32
			Keep             bool `json:"keepDims"`
		}
		read(&m)
		return &Reduction{Op: named(t, reductionNames, m.Operation), Dims: m.Dim, Keep: m.Keep, T: named(t, dataTypeNames, m.DType)}
	case "TopKV2":
		var m struct {
			T               string
			Sorted, Largest bool
		}
		read(&m)
		return &TopK{T: named(t, dataTypeNames, m.T), Sorted: m.Sorted, Largest: m.Largest}
	case "CastParam":
		var m struct{ SrcT, DstT string }
		read(&m)
		return &Cast{From: named(t, dataTypeNames, m.SrcT), To: named(t, dataTypeNames, m.DstT)}
	case "Range":
		var m struct{ Tidx string }
		read(&m)
		return &Range{T: named(t, dataTypeNames, m.Tidx)}
	case "Relu":
		var m Relu
		read(&m)
		return &m
	case "BatchMatMulParam":
		var m struct{ AdjX, AdjY bool }
		read(&m)
		return &BatchMatMul{TransposeX: m.AdjX, TransposeY: m.AdjY}
	case "Extra":
		var m struct {
			Attr []struct {
				Key string
				I   int32
			}
		}
		read(&m)
		got := map[string]int32{}
		for _, a := range m.Attr {
			got[a.Key] = a.I
		}
		return &MoE{Layer: got["layer_id"], Experts: got["num_experts"], TopK: got["top_k"]}
	case "LinearAttentionParam":
		var m struct {
			Type       string `json:"attn_type"`
			KeyHeads   int32  `json:"num_k_heads"`
			ValueHeads int32  `json:"num_v_heads"`
			KeyDim     int32  `json:"head_k_dim"`
			ValueDim   int32  `json:"head_v_dim"`
			QKNorm     bool   `json:"use_qk_l2norm"`
		}
		read(&m)
		return &LinearAttention{Type: m.Type, KeyHeads: m.KeyHeads, ValueHeads: m.ValueHeads, KeyDim: m.KeyDim, ValueDim: m.ValueDim, QKNorm: m.QKNorm}
	}
	t.Fatalf("parameter %s is in no dump that this test was written for", d.MainType)
	return nil
}

// dumpSubgraph is a subgraph of a dump.
type dumpSubgraph struct {
	Name            string
	Inputs, Outputs []int32
	Tensors         []string
	Nodes           []dumpOp
}

func (d *dumpSubgraph) subgraph(t *testing.T) Subgraph {
	t.Helper()
	s := Subgraph{Name: d.Name, Inputs: d.Inputs, Outputs: d.Outputs, Tensors: d.Tensors}
	for i := range d.Nodes {
		s.Ops = append(s.Ops, d.Nodes[i].op(t))
	}
	return s
}
