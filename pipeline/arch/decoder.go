// Package arch describes the computation of a checkpoint. A family reads config.json and describes the text model as
// a [Decoder]: dimensions, norms, rotary tables, and for every weight of the computation the checkpoint
// tensor that fills it. The description is independent of graphs and packages: pipeline/lower turns it into
// the graph of an engine, pipeline/forward computes it directly.
//
// Call [Describe] first. It rejects, with tensor.ErrUnsupported, whatever it does not know: model types, config keys that
// are on no list, values that change the computation, tensors that fill no slot, and slots that no tensor fills. Then
// [Open] gives access to the checkpoint's tensors under the names of the description.
package arch

import (
	"iter"
	"strconv"
)

// Decoder describes a decoder-only language model, one token row in, one row of logits out.
//
//	h = EmbeddingScale · EmbeddingNorm(Embedding[token]) + Positions[FirstPosition + position]
//	for each layer, for each of its branches: h = SumNorm(Gain · (h + Scale · Factors · PostNorm(Block(Norm(h)))))
//	logits = cap(LogitScale · Head · FinalNorm(h))      cap(x) = LogitCap · tanh(x / LogitCap)
//
// With Pooling it describes a model that turns a text into one vector: there is no head then, and there may be no final norm.
type Decoder struct {
	// Family is the name in the table of families; ModelType is the checkpoint's own word.
	Family, ModelType string
	// Architecture is the entry of "architectures" in config.json, for example "Qwen3ForCausalLM".
	Architecture string

	Hidden, Vocab int
	// MaxPositions is the longest context that the checkpoint declares, in tokens.
	MaxPositions int

	Embedding Weight // [Vocab, Hidden]
	// Lookup, if it has a tensor, is Embedding with columns of zeros after it, for a package whose rows of pictures have in the first of them
	// how many rows of the same picture follow. A token of a picture then attends to these too, in every Attention but a OneWay one.
	// With PerLayer it is Embedding with the columns of that table after it instead.
	Lookup Weight
	// PerLayer, or nil, makes a vector for every layer from each token.
	PerLayer *PerLayer
	// Side is the number of columns that states have after the Hidden of the stream, which is all that norms and sums concern: the vectors of
	// PerLayer, in the order of the layers, and keys and values that an Attention lends.
	Side int
	// EmbeddingScale multiplies token rows; 0 stands for 1.
	EmbeddingScale float64
	EmbeddingNorm  *Norm // or nil
	// NormLast: h = EmbeddingNorm(Embedding[token] + Segment + Positions[FirstPosition + position]) instead. Segment [Hidden]
	// is the same for all tokens; it has no tensor unless NormLast is set.
	NormLast bool
	Segment  Weight
	// Positions [FirstPosition + MaxPositions, Hidden], if it has a tensor, holds what is added for the position of a token.
	Positions     Weight
	FirstPosition int
	Layers        []Layer
	FinalNorm     Norm
	// Head maps hidden to logits, [Vocab, Hidden]. Tied says that it is the embedding's tensor.
	Head Linear
	Tied bool
	// LogitScale multiplies logits; 0 stands for 1. LogitCap bounds the scaled logits; 0 stands for none.
	LogitScale, LogitCap float64
	// Pooling, if not nil, makes a vector of the states after the final norm, in place of logits.
	Pooling *Pooling

	// Inserted: rows of towers can take the place of token rows, so the states before the first layer keep their coordinates.
	Inserted bool
	// Deep is after how many of the first layers values are added to rows that are inserted: each row comes with as many more.
	Deep int

	// Precision is "normal" if hidden states exceed the range of fp16 (65504), else empty.
	Precision string

	// Ropes are the rotary tables that attentions point to, each once.
	Ropes []*Rope

	// Views are tensors of the description that the checkpoint has in another form, see [Open].
	Views []View
	// Skips are the tensors of the checkpoint that are not part of the model.
	Skips []Skip
	// Notes are sentences for the user about omitted parts of a larger model.
	Notes []string

	// HeadTensor is the name that the head's own tensor has in a checkpoint of a tied model, if it is there.
	HeadTensor string

	// Claimed maps every tensor of the checkpoint to its use: "weight", or the reason
	// why it is left out ("duplicate of model.embed_tokens.weight", "rotary buffer").
	Claimed map[string]string
	// Ignored lists config keys that were ignored at the caller's request, for the report.
	Ignored []string
}

// Width is that of states between layers: the stream, and what is next to it.
func (d *Decoder) Width() int { return d.Hidden + d.Side }

// Marked reports whether tokens of pictures attend to later ones of the same picture.
func (d *Decoder) Marked() bool { return d.Lookup.Tensor != "" && d.PerLayer == nil }

// PerLayer is a second table for tokens, whose rows have Width elements for each layer. With h the states before the first layer, the
// vectors of all layers, each of them normalised alone, are
//
//	Scale · (Norm(ProjectionScale · Projection h) + TableScale · Table[token])
//
// Rows of towers that take the place of token rows have the row of the token Pad.
type PerLayer struct {
	Width                              int
	Table                              Weight // [Vocab, layers*Width]
	Projection                         Linear // [layers*Width, Hidden]
	Norm                               Norm   // [Width]
	Scale, ProjectionScale, TableScale float64
	Pad                                int
}

// Weight names the tensor of a slot, of the checkpoint or a view, and the shape it must have.
type Weight struct {
	Tensor string
	Rows   int
	Cols   int // 0 for a vector of Rows elements
}

// Linear is y = W x + b, W [Rows, Cols] with rows as outputs. Bias has an empty Tensor when absent.
type Linear struct {
	Weight Weight
	Bias   Weight
	// Clip, if not nil, bounds the elements of x and of y. Only in a tower, which has no gradients.
	Clip *Clip
}

// Clip has the bounds of a [Linear], vectors of one element; they may be infinite.
type Clip struct{ InLow, InHigh, OutLow, OutHigh Weight }

// Norm is RMSNorm, x / sqrt(mean(x^2) + Eps) * Gamma, or if Centered LayerNorm,
// (x - mean) / sqrt(variance + Eps) * Gamma + Beta. It is applied to each len(Gamma) adjacent elements
// of a row. Beta has an empty Tensor when absent.
type Norm struct {
	Gamma    Weight
	Beta     Weight
	Eps      float64
	Centered bool
	// Parts above 1 divides Gamma into that many equal parts, whose elements are normalised separately.
	Parts int
}

// Layer is a list of branches of the residual stream, in the order in which they are added to it.
type Layer []Branch

// Blocks iterates over the blocks of a layer, in order; a [Sum] stands for the blocks that it adds.
func (l Layer) Blocks() iter.Seq[Block] {
	return func(yield func(Block) bool) { l.each(yield) }
}

func (l Layer) each(yield func(Block) bool) bool {
	for _, b := range l {
		if s, ok := b.Block.(*Sum); ok {
			if !Layer(s.Branches).each(yield) {
				return false
			}
		} else if !yield(b.Block) {
			return false
		}
	}
	return true
}

// Branch is h = SumNorm(Gain · (h + Scale · Factors · PostNorm(Block(Norm(h))))).
type Branch struct {
	// Parallel: the branch reads the same stream as the branch before it.
	Parallel bool
	Norm     *Norm // or nil
	Block    Block
	PostNorm *Norm   // or nil
	Factors  Weight  // [Hidden], or without tensor
	Scale    float64 // 0 stands for 1
	Gain     Weight  // [1], or without tensor
	// SumNorm, or nil, normalises the stream itself. The branch after it is not Parallel then.
	SumNorm *Norm
}

// Plain reports whether what the block computes is added to the stream as it is.
func (b *Branch) Plain() bool {
	return b.PostNorm == nil && b.Factors.Tensor == "" && (b.Scale == 0 || b.Scale == 1)
}

// Block is what a branch computes from its normalised input: one of [*Attention], [*LatentAttention], [*MLP],
// [*Experts], [*Sum], [*Injection], [*ShortConv], [*GatedConv], [*NearAttention], [*DeltaNet], [*Mamba2].
type Block interface {
	// linears calls f with every linear layer and its name within the layer, in the order of the computation.
	linears(f func(name string, l *Linear))
	// vectors calls f with every other weight.
	vectors(f func(w Weight))
}

// Attention is grouped-query attention, causal unless it is Bidirectional:
//
//	q, k, v = Q x, K x, VNorm(V x), in heads of HeadDim; without V, v = VNorm(K x)
//	q, k = rotate(clip(QNorm(q))), rotate(clip(KNorm(k))), or the norms after the rotation; v = clip(v)
//	y = O · OutNorm(softmax(cap(Scale · q kᵀ) + mask) v · sigmoid(Gate x))
type Attention struct {
	Heads, KVHeads, HeadDim int
	Q, K, V, O              Linear
	// QNorm, KNorm and VNorm, if not nil, normalise every head (Gamma has HeadDim elements), the whole projection
	// (Heads*HeadDim or KVHeads*HeadDim), or every head with its own gains (as many elements, and a part for each head).
	// NormAfter: QNorm and KNorm follow the rotation.
	QNorm, KNorm, VNorm *Norm
	NormAfter           bool
	// Clip, if not 0, bounds the elements of q, k and v: clip(x) = min(max(x, -Clip), Clip).
	Clip float64
	// Rope turns q and k, the first Dim elements of every head, half-split; nil leaves them as they are.
	Rope *Rope
	// Scale multiplies scores; 0 stands for 1/sqrt(HeadDim).
	Scale float64
	// Window is the number of positions that a query attends to, including its own; 0 stands for all. Chunk, if not 0,
	// restricts a query to positions p with the same p/Chunk.
	Window, Chunk int
	// Bidirectional: a query attends to all positions, also to later ones, or with a Window to those less than Window away on either
	// side. Without Chunk, Sinks and Cap.
	Bidirectional bool
	// OneWay: a token of a picture does not attend to later ones of it, see Decoder.Lookup.
	OneWay bool
	// Square, in a tower that reads patches of pictures of any size, is the edge, in patches, of the squares into which a picture is cut from
	// its corner on: a patch attends to those of its own square. 0 stands for the whole picture.
	Square int
	// Lends: states have, next to the stream from column Lent on, the keys and then the values, as they are attended to, for attentions that
	// Borrow them from there and have no K and V of their own. Heads and rotation of both are the same.
	Lends, Borrows bool
	Lent           int
	// Sinks [Heads], if it has a tensor, are the scores of a key without a value that all queries attend to. Scale does not
	// apply.
	Sinks Weight
	// Slopes, if not nil, are those of ALiBi: head h subtracts Slopes[h] times the distance between query and key from its scores.
	Slopes []float64
	// Relative, if not nil, makes scores depend on the distance between query and key. Bidirectional only, without Window, Slopes and Rope, and
	// with as many KVHeads as Heads.
	Relative *Relative
	// Cap bounds scores: Cap·tanh(score/Cap); 0 stands for none.
	Cap float64
	// Gate [Heads*HeadDim, Hidden], if it has a tensor, multiplies the heads by sigmoid(Gate x).
	Gate Linear
	// OutNorm, if not nil, normalises the input of O.
	OutNorm *Norm
	// Temperature, if not nil, multiplies q by 1 + Scale·ln(1 + floor((position+Offset)/Floor)).
	Temperature *Temperature
}

// Temperature scales queries by their position, see [Attention].
type Temperature struct {
	Floor, Scale float64
	Offset       int
}

// Relative is what Transformer-XL has for positions (Dai et al., arXiv 1901.02860, 3.3). The score of query i and key j is
//
//	Scale · ((q + Content) kᵀ + (q + Place) (Keys · s(i-j))ᵀ)
//
// of vectors s(distance) of Hidden elements: the sine and the cosine of distance · 10000^(-2n/Hidden) for each n, see [Ear.Distances].
type Relative struct {
	Content, Place Weight // [Heads*HeadDim]
	Keys           Linear // [Heads*HeadDim, Hidden], without bias
}

// LatentAttention is DeepSeek's multi-head latent attention (DeepSeek-V2, arXiv 2405.04434):
//
//	c  = QNorm(QDown x)                  or x where there is no QDown
//	l  = KVNorm(KVDown x)                the latent, [KVRank]
//	q  = [QNope c, rotate(QRope c)]      per head
//	k  = [KNope l, rotate(KRope x)]      KRope is one head, shared by all
//	y  = O · softmax(Scale · q kᵀ) (V l)
type LatentAttention struct {
	Heads, NopeDim, RopeDim, ValueDim int
	QRank, KVRank                     int // QRank 0: no QDown and QNorm
	QDown                             Linear
	QNorm                             *Norm
	QNope, QRope                      Linear // [Heads*NopeDim, QRank or Hidden], [Heads*RopeDim, same]
	KVDown                            Linear // [KVRank, Hidden]
	KVNorm                            *Norm
	KRope                             Linear // [RopeDim, Hidden]
	KNope, V                          Linear // [Heads*NopeDim, KVRank], [Heads*ValueDim, KVRank]
	O                                 Linear // [Hidden, Heads*ValueDim]
	Rope                              *Rope
	Scale                             float64 // always set
}

// Activation is the nonlinear function of an MLP.
type Activation string

// The activations.
const (
	SiLU     Activation = "silu"      // x·sigmoid(x)
	ReLU     Activation = "relu"      // max(x, 0)
	GELU     Activation = "gelu"      // x·Φ(x), by erf
	GELUTanh Activation = "gelu_tanh" // its tanh form
	ReLU2    Activation = "relu2"     // max(x, 0)²
	// QuickGELU is x·sigmoid(1.702·x).
	QuickGELU Activation = "quick_gelu"
	// XIELU (arXiv 2411.13010) is Alphas[0]·x² + Beta·x above 0, else Alphas[1]·(exp(x)-1-x) + Beta·x.
	XIELU Activation = "xielu"
	// ClampedSwiGLU (gpt-oss): g = min(g, Limit), u = clamp(u, ±Limit): (u + 1)·g·sigmoid(Alpha·g).
	ClampedSwiGLU Activation = "clamped_swiglu"
)

// MLP is Down · Norm(act(Gate x) * (Up x)), or Down · Norm(act(Up x)) where Gate has no tensor.
type MLP struct {
	Intermediate   int
	Activation     Activation
	Gate, Up, Down Linear
	Norm           *Norm // or nil
	// GateScale multiplies Gate x; 0 stands for 1.
	GateScale float64
	// Alpha and Limit belong to ClampedSwiGLU.
	Alpha, Limit float64
	// XIELU holds the vectors of one element that belong to it: the factors of x², of the exponential and of x.
	XIELU [3]Weight
}

// Scoring is how a router turns its scores into weights of experts.
type Scoring string

// The scorings.
const (
	Softmax     Scoring = "softmax"      // over all experts, then the largest
	Sigmoid     Scoring = "sigmoid"      // of each, then the largest
	TopKSoftmax Scoring = "topk_softmax" // the largest, then softmax over them
	// SparseMixer (arXiv 2409.12136) chooses two. The weight of each is its share of a softmax over itself and the experts that
	// were not chosen before it and are not far below it: (m - s)/max(|s|, m) <= Near, where m is its own score.
	SparseMixer Scoring = "sparsemixer"
)

// Experts is a mixture of experts: the sum over the TopK chosen experts of weight · MLP(Norm(x)), plus Shared with the same
// input.
//
//	s = scoring(Router RouterNorm(x)), c = s + Correction; the TopK largest of c are chosen, their weights are those of s
//	Normalize: weights /= sum + Epsilon;  then weights *= Scale · Gains
type Experts struct {
	RouterNorm, Norm *Norm  // or nil
	Router           Linear // [experts, Hidden]
	Scoring          Scoring
	// Correction [experts], if it has a tensor, affects the choice but not the weights.
	Correction Weight
	TopK       int
	Normalize  bool
	Epsilon    float64
	Scale      float64 // 0 stands for 1
	Near       float64 // of SparseMixer
	Gains      Weight  // [experts], or without tensor
	// With Groups > 1 only experts of the TopGroups best groups can be chosen. Groups are ranked by the sum of their
	// GroupTop best experts.
	Groups, TopGroups, GroupTop int
	// ScaleInput multiplies an expert's input by its weight instead of its output; TopK is 1.
	ScaleInput bool
	Experts    []MLP
	// Shared, if not nil, is added for every token, multiplied by sigmoid(SharedGate x) if that has a tensor.
	Shared     *MLP
	SharedGate Linear
}

// Sum is the sum over branches of Scale · PostNorm(Block(Norm(x))), where x is the input of the sum. No branch is Parallel or
// has Factors or a Gain.
type Sum struct{ Branches []Branch }

// Injection is Out · (act(Gate x) * e), where e are the Gate.Rows columns next to the stream from column At on, see [PerLayer].
type Injection struct {
	Activation Activation
	Gate, Out  Linear
	At         int
}

// ShortConv is LFM2's gated short convolution: B, C, X = In x; y = Out (C * (conv(B * X) + Bias)).
type ShortConv struct {
	In Linear // [3*Hidden, Hidden]: B, C, X
	// Taps [Hidden] of the causal depthwise convolution, the one of the present token last.
	Taps []Weight
	Bias Weight // [Hidden] or without tensor
	Out  Linear
}

// GatedConv is the convolution of a Conformer (Gulati et al., arXiv 2005.08100), of each element of a row alone, with zeros on both sides:
//
//	a, b = In x, in halves
//	y = Out · silu(Norm(Kernel * (a · sigmoid(b)) + Bias))
type GatedConv struct {
	In     Linear // [2*Hidden, Hidden]
	Kernel Weight // [Hidden, an odd number of taps, or with Causal any]
	Bias   Weight // [Hidden], or without tensor
	// Causal: the last tap is that of the row itself.
	Causal bool
	Norm   *Norm // or nil
	Out    Linear
}

// DeltaNet is the gated delta rule (arXiv 2412.06464) of Qwen3-Next and Qwen3.5. With q, k, v the parts of
// silu(conv(QKV x)), q and k of unit length and q divided by sqrt(KeyDim), every key head shared by
// ValueHeads/KeyHeads adjacent value heads:
//
//	g = Decay · softplus(A x + DtBias), beta = sigmoid(B x)
//	S = exp(g)·S;  S += k (beta·(v - Sᵀk))ᵀ;  o = Sᵀq
//	y = Out (Norm(o) * silu(Z x))
type DeltaNet struct {
	KeyHeads, ValueHeads, KeyDim, ValueDim int
	QKV                                    Linear // [2*KeyHeads*KeyDim + ValueHeads*ValueDim, Hidden]
	Z, B, A                                Linear
	Taps                                   []Weight // as in ShortConv, of QKV's rows
	Decay, DtBias                          Weight   // [ValueHeads]; Decay is -exp(A_log)
	Norm                                   Norm     // [ValueDim]
	Out                                    Linear
}

// Mamba2 is the state space block of Mamba 2 (arXiv 2405.21060). With x, b, c the parts of silu(conv(XBC n) + ConvBias), heads
// of HeadDim sharing b and c of State elements in Groups:
//
//	dt = clamp(softplus(Dt n + DtBias), TimeMin, TimeMax)
//	S = exp(dt·Decay)·S + b (dt·x)ᵀ;  o = Sᵀc + D·x
//	y = Out (Norm(o * silu(Z n)))
type Mamba2 struct {
	Heads, HeadDim, Groups, State int
	Z, XBC, Dt                    Linear
	// Scales multiply z, x, b, c and dt, the outputs of their matrices; 0 stands for 1.
	Scales           [5]float64
	Taps             []Weight
	ConvBias         Weight // or without tensor
	DtBias, Decay, D Weight // [Heads]; Decay is -exp(A_log)
	TimeMin, TimeMax float64
	// Norm, if not nil, has a Gamma of Heads*HeadDim elements.
	Norm *Norm
	Out  Linear
}

// Rope holds the rotary frequencies: pair j (j and j+Dim/2 of a head) turns by position*InvFreq[j], and cosine and sine
// are multiplied by Scale.
type Rope struct {
	Type    string // the rule the frequencies come from: "default", "linear", "llama3", ...
	Dim     int
	InvFreq []float64 // Dim/2 radians per position
	Scale   float64   // 1 where the rule has none
	// Axes, if not nil, is the axis of the position that turns each pair. A token of text has the same position on all axes, one of a
	// picture its row and column on the last two. In a tower the axes are row and column.
	Axes []int
	// Long, if not nil, replaces InvFreq in a call whose last position is Original or later (longrope).
	Long     []float64
	Original int
}

// Linears calls f with every linear layer and its name within the model ("layers.0.attention.q", "head", "dense.0"),
// in the order of the computation. A tied head is included.
func (d *Decoder) Linears(f func(name string, l *Linear)) {
	for i := range d.Layers {
		d.LayerLinears(i, f)
	}
	if d.Pooling == nil {
		f("head", &d.Head)
		return
	}
	for i := range d.Pooling.Dense {
		f("dense."+strconv.Itoa(i), &d.Pooling.Dense[i].Linear)
	}
}

// LayerLinears calls f as Linears does with those of one layer.
func (d *Decoder) LayerLinears(i int, f func(name string, l *Linear)) {
	for _, b := range d.Layers[i] {
		b.Block.linears(func(name string, l *Linear) { f(layerName(i)+name, l) })
	}
}

// weights calls f with every slot that needs a tensor. The head of a tied model is not repeated.
func (d *Decoder) weights(f func(Weight)) {
	f(d.Embedding)
	some(f, d.Lookup)
	if p := d.PerLayer; p != nil {
		f(p.Table)
		p.Projection.weights(f)
		p.Norm.vectors(f)
	}
	d.EmbeddingNorm.vectors(f)
	some(f, d.Positions, d.Segment)
	for _, layer := range d.Layers {
		layer.weights(f)
	}
	d.FinalNorm.vectors(f)
	if d.Pooling != nil {
		for i := range d.Pooling.Dense {
			d.Pooling.Dense[i].weights(f)
		}
		return
	}
	if !d.Tied {
		d.Head.weights(f)
	} else if d.Head.Bias.Tensor != "" {
		f(d.Head.Bias)
	}
}

// weights calls f with the slots of a layer.
func (l Layer) weights(f func(Weight)) {
	for _, b := range l {
		b.Norm.vectors(f)
		b.Block.linears(func(_ string, l *Linear) { l.weights(f) })
		b.Block.vectors(f)
		b.PostNorm.vectors(f)
		some(f, b.Factors, b.Gain)
		b.SumNorm.vectors(f)
	}
}

// weights calls f with the matrix of a linear layer, and with the bias if there is one.
func (l *Linear) weights(f func(Weight)) {
	f(l.Weight)
	some(f, l.Bias)
	if c := l.Clip; c != nil {
		some(f, c.InLow, c.InHigh, c.OutLow, c.OutHigh)
	}
}

func layerName(i int) string { return "layers." + strconv.Itoa(i) + "." }
