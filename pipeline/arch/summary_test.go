package arch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// summary says in words what a model computes, without names of tensors: a line for what stands outside the layers, one for
// every rotary table, and one for every branch, with the layers that have it.
func summary(d *Decoder) []string {
	lines := []string{fmt.Sprintf("model %d tokens to %d, context %d%s%s%s%s%s%s%s", d.Vocab, d.Hidden, d.MaxPositions,
		given(" embeddings times", d.EmbeddingScale), given(" logits times", d.LogitScale), given(" logits within", d.LogitCap),
		flag(" tied", d.Tied), flag(" head bias", d.Head.Bias.Tensor != ""),
		flag(fmt.Sprintf(" learned positions from %d", d.FirstPosition), d.Positions.Tensor != ""), flag(" "+d.Precision, d.Precision != "")) +
		" norm" + describeNorm(&d.FinalNorm)}
	if p := d.Pooling; p != nil {
		lines = append(lines, fmt.Sprintf("pooling %s to %d%s%s%s", p.Of, p.Size(d.Hidden), flag(" normalized", p.Normalize), flag(" of pairs", p.Pairs),
			flag(fmt.Sprintf(" after %d layers", len(p.Dense)), len(p.Dense) > 0)))
	}
	if p := d.PerLayer; p != nil {
		lines = append(lines, fmt.Sprintf("vectors of %d for each layer, times %.6g: norm%s of a projection times %.6g and a table times %.6g, pad %d",
			p.Width, p.Scale, describeNorm(&p.Norm), p.ProjectionScale, p.TableScale, p.Pad))
	}
	if d.NormLast {
		lines = append(lines, "embedding, segment and positions before norm"+describeNorm(d.EmbeddingNorm))
	}
	names := map[*Rope]string{}
	for i, r := range d.Ropes {
		names[r] = fmt.Sprintf("%s%d", r.Type, i)
		lines = append(lines, fmt.Sprintf("rope %s of %d times %.6g: %.6g%s%s", names[r], r.Dim, r.Scale, r.InvFreq,
			flag(fmt.Sprintf(" beyond %d %.6g", r.Original, r.Long), r.Long != nil), flag(fmt.Sprintf(" by axes %v", r.Axes), r.Axes != nil)))
	}
	layers := map[string][]int{}
	var order []string
	for i, l := range d.Layers {
		for _, b := range l {
			text := describeBlock(d, b.Block, names) + given(" times", b.Scale) + flag(" parallel", b.Parallel) +
				flag(" before"+describeNorm(b.Norm), b.Norm != nil) + flag(" behind"+describeNorm(b.PostNorm), b.PostNorm != nil) +
				flag(" factors", b.Factors.Tensor != "") +
				flag(" sum"+describeNorm(b.SumNorm), b.SumNorm != nil)
			if layers[text] == nil {
				order = append(order, text)
			}
			layers[text] = append(layers[text], i)
		}
	}
	for _, text := range order {
		lines = append(lines, fmt.Sprintf("%v %s", layers[text], text))
	}
	return lines
}

// modelSummary is summary with the towers and the ear.
func modelSummary(m *Model) []string {
	lines := summary(m.Text)
	for _, t := range m.Towers {
		size := fmt.Sprintf("%d pixels in patches of %d, %d rows of %d to %d", t.Size, t.Patch, t.States(), t.Hidden, t.Rows())
		if t.Grid {
			size = fmt.Sprintf("patches of %d, %d times, rows of %d to one for %d x %d", t.Patch, t.Frames, t.Hidden, t.Cell, t.Cell) +
				flag(fmt.Sprintf(" padded to %d", t.Padded), t.Padded > 0) + flag(" signed", t.Signed) +
				flag(fmt.Sprintf(" at %d x %d", t.Places[0].Rows, t.Places[1].Rows), t.Places[0].Tensor != "") +
				given(" gain", t.Gain) + flag(" standardized", t.Center.Tensor != "") +
				flag(fmt.Sprintf(" and %d columns", t.Tail.Rows), t.Tail.Tensor != "")
		}
		lines = append(lines, fmt.Sprintf("tower %s of %d%s%s%s%s, pad %d%s",
			size, cmp.Or(t.Out.Weight.Rows, t.In.Weight.Rows), flag(" class", t.Class.Tensor != ""), flag(" positions", t.Positions.Tensor != ""),
			flag(" before"+describeNorm(t.PreNorm), t.PreNorm != nil), flag(" behind"+describeNorm(t.PostNorm), t.PostNorm != nil), t.Pad,
			flag(" in "+t.Start+t.End, t.Start != "")+flag(" in tiles", t.Tiles != nil)+describeSlices(t.Slices)+flag(" padded", t.Squared)+
				flag(fmt.Sprintf(" means of %d x %d times %.4g and %d marks",
					t.Pool, t.Pool, t.Scale, t.Marks), t.Marks > 0)),
			describeProjector(&t.Projector))
		for i := range t.Stages {
			lines = append(lines, fmt.Sprintf("stage %d of %s", i, describeStage(&t.Stages[i])))
		}
		for _, deep := range t.Deep {
			lines = append(lines, fmt.Sprintf("after layer %d %s", deep.After, describeProjector(&deep.Projector)))
		}
		for _, line := range summary(&Decoder{Layers: t.Layers, Ropes: ropesOf(t.Layers)})[1:] {
			lines = append(lines, "tower "+line)
		}
	}
	if e := m.Ear; e != nil {
		lines = append(lines, fmt.Sprintf("ear %d features, %d frames%s to %d rows of %d to %d%s, pad %d in %s%s", e.Mels, e.Frames,
			flag(fmt.Sprintf(" in pieces of %d", e.Piece), e.Piece > 0), e.Rows(e.Frames), e.Hidden, e.Out.Weight.Rows,
			flag(" behind"+describeNorm(e.PostNorm), e.PostNorm != nil), e.Pad, e.Start, e.End))
		if s := e.Subsampling; s != nil {
			lines = append(lines, fmt.Sprintf("ear from %s%s, to %d%s%s", describeStage(&Stage{Enter: s.Convolutions}), given(" times", s.Scale), e.Between.Weight.Rows,
				flag(" norm"+describeNorm(e.BetweenNorm), e.BetweenNorm != nil), flag(fmt.Sprintf(" and %d columns", e.Tail.Rows), e.Tail.Tensor != "")))
		}
		for _, line := range summary(&Decoder{Layers: e.Layers})[1:] {
			lines = append(lines, "ear "+line)
		}
	}
	return lines
}

func describeSlices(s *Slices) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(" in slices of %d rows by %d heads of %d", s.Queries.Rows, s.Attention.Heads, s.Attention.HeadDim)
}

func describeStage(s *Stage) string {
	var words []string
	convolution := func(name string, c *Convolution) {
		words = append(words, fmt.Sprintf("%s %d to %d by %d step %d%s%s%s", name, c.In, c.Weight.Rows, c.Kernel, c.Stride, flag(" each", c.Each),
			flag(fmt.Sprintf(" excited by %d", c.Reduce.Weight.Rows), c.Reduce.Weight.Tensor != ""), flag(" norm"+describeNorm(c.Norm), c.Norm != nil)+
				flag(" "+string(c.Activation), c.Activation != "")))
	}
	for i := range s.Enter {
		convolution("enter", &s.Enter[i])
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.Mix != nil {
			convolution("mix", b.Mix)
		}
		words = append(words, summary(&Decoder{Layers: []Layer{b.Attend}})[1:]...)
		convolution("near", &b.Near)
		words = append(words, fmt.Sprintf("mlp %d %s", b.MLP.Intermediate, b.MLP.Activation))
	}
	return strings.Join(words, ", ")
}

func describeProjector(p *Projector) string {
	front := ""
	for _, l := range p.Front {
		front += fmt.Sprintf(" to %d", l.Weight.Rows)
	}
	return fmt.Sprintf("projector%s%s%s%s %s%s%s", flag(" planes", p.Planes), front, flag(describeNorm(p.Norm), p.Norm != nil),
		flag(" "+string(p.Between), p.Between != ""), p.Activation, flag(" gated", p.Gate.Weight.Tensor != ""), flag(" bias", p.In.Bias.Tensor != ""))
}

// ropesOf lists the rotary tables of layers.
func ropesOf(layers []Layer) (list []*Rope) {
	for _, l := range layers {
		for _, b := range l {
			if a, ok := b.Block.(*Attention); ok && a.Rope != nil && !slices.Contains(list, a.Rope) {
				list = append(list, a.Rope)
			}
		}
	}
	return list
}

func given(what string, x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%s %.6g", what, x)
}

func flag(text string, on bool) string {
	if on {
		return text
	}
	return ""
}

func describeNorm(n *Norm) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf(" %g%s%s", n.Eps, flag(" 1+w", strings.HasSuffix(n.Gamma.Tensor, ".gamma")), flag(" centered", n.Centered))
}

func normParts(n *Norm) int {
	if n == nil {
		return 0
	}
	return n.Parts
}

func describeMLP(m *MLP) string {
	return fmt.Sprintf("%d %s%s%s%s%s%s%s", m.Intermediate, m.Activation, given(" alpha", m.Alpha), given(" limit", m.Limit),
		flag(" ungated", m.Gate.Weight.Tensor == ""), flag(" bias", m.Up.Bias.Tensor != ""), flag(" fused", isView(m.Up)),
		flag(" bounded", m.Up.Clip != nil))
}

// isView says that a matrix is cut from another.
func isView(l Linear) bool {
	n := strings.TrimSuffix(l.Weight.Tensor, ".weight")
	return slices.ContainsFunc([]string{".up", ".half_split", ".q", ".query", ".rope"}, func(s string) bool { return strings.HasSuffix(n, s) })
}

func describeBlock(d *Decoder, block Block, names map[*Rope]string) string {
	switch x := block.(type) {
	case *Attention:
		text := fmt.Sprintf("attention %d/%d of %d", x.Heads, x.KVHeads, x.HeadDim)
		if x.Rope != nil {
			text += " " + names[x.Rope]
		}
		if x.QNorm != nil {
			text += fmt.Sprintf(" norms of %d%s%s%s", x.QNorm.Gamma.Rows, describeNorm(x.QNorm),
				flag(fmt.Sprintf(" in %d parts", x.QNorm.Parts), x.QNorm.Parts > 0), flag(" behind", x.NormAfter))
		}
		return text + given(" scale", x.Scale) + given(" cap", x.Cap) + given(" clip", x.Clip) + given(" window", float64(x.Window)) +
			given(" chunk", float64(x.Chunk)) +
			flag(" bidirectional", x.Bidirectional) + flag(" by distance", x.Relative != nil) + flag(fmt.Sprintf(" lends at %d", x.Lent), x.Lends) +
			flag(fmt.Sprintf(" borrows at %d", x.Lent), x.Borrows) + flag(" one-way", x.OneWay) +
			flag(fmt.Sprintf(" slopes %.3g", x.Slopes), x.Slopes != nil) +
			flag(fmt.Sprintf(" within squares of %d", x.Square), x.Square != 0) +
			flag(" sinks", x.Sinks.Tensor != "") + flag(" gate", x.Gate.Weight.Tensor != "") + flag(" bias", x.Q.Bias.Tensor != "") +
			flag(" out bias", x.O.Bias.Tensor != "") + flag(" cut", isView(x.Q))
	case *LatentAttention:
		turned := slices.ContainsFunc(d.Views, func(v View) bool { return v.Name == x.KRope.Weight.Tensor && v.Runs[0].Step == 2 })
		return fmt.Sprintf("latent %d of %d+%d to %d, ranks %d and %d, %s%s scale %.6g%s%s", x.Heads, x.NopeDim, x.RopeDim, x.ValueDim,
			x.QRank, x.KVRank, names[x.Rope], flag(" interleaved", turned), x.Scale, describeNorm(x.KVNorm), flag(" bias", x.O.Bias.Tensor != ""))
	case *MLP:
		return "mlp " + describeMLP(x)
	case *Experts:
		text := fmt.Sprintf("%d of %d experts of %s, %s", x.TopK, len(x.Experts), describeMLP(&x.Experts[0]), x.Scoring) +
			flag(" corrected", x.Correction.Tensor != "") + flag(fmt.Sprintf(" normalised %g", x.Epsilon), x.Normalize) + given(" times", x.Scale) +
			flag(" router bias", x.Router.Bias.Tensor != "")
		if x.Groups > 1 {
			text += fmt.Sprintf(" %d of %d groups by %d", x.TopGroups, x.Groups, x.GroupTop)
		}
		if x.Shared != nil {
			text += " shared " + describeMLP(x.Shared) + flag(" gated", x.SharedGate.Weight.Tensor != "")
		}
		return text
	case *Injection:
		return fmt.Sprintf("injection of %d at %d %s", x.Gate.Weight.Rows, x.At, x.Activation)
	case *GatedConv:
		if x.Causal {
			return fmt.Sprintf("conv of %d taps before norm%s%s", x.Kernel.Cols, describeNorm(x.Norm), flag(" bounded", x.In.Clip != nil))
		}
		return fmt.Sprintf("conv of %d taps around", x.Kernel.Cols)
	case *NearAttention:
		return fmt.Sprintf("attention of %d heads of %d to %d before and %d after, distances from %d, keys times %.4g, cap %g%s", x.Heads, x.HeadDim, x.Past,
			x.Future, x.Shift, x.KeyScale, x.Cap, flag(" bounded", x.Q.Clip != nil))
	case *ShortConv:
		return fmt.Sprintf("conv of %d taps%s", len(x.Taps), flag(" bias", x.Bias.Tensor != ""))
	case *DeltaNet:
		return fmt.Sprintf("delta %d of %d and %d of %d, %d taps%s", x.KeyHeads, x.KeyDim, x.ValueHeads, x.ValueDim, len(x.Taps), describeNorm(&x.Norm))
	case *Mamba2:
		return fmt.Sprintf("mamba %d of %d, %d groups of %d, %d taps, time %g to %g norm of %d%s%s", x.Heads, x.HeadDim, x.Groups, x.State, len(x.Taps),
			x.TimeMin, x.TimeMax, normParts(x.Norm), describeNorm(x.Norm), flag(" bias", x.Out.Bias.Tensor != ""))
	}
	return fmt.Sprintf("%T", block)
}
