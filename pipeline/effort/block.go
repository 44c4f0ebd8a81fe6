package effort

import (
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// groupTokens is how many tokens of whole windows pass through a layer at a time: each group reads every weight once.
const groupTokens = 2048

// Site is a vector that linear layers read.
type Site struct {
	Linears []*arch.Linear
	// Share of the tokens that have this vector: 1, or for an expert the mean over experts.
	Share float64
}

// Cols is the length of the vector.
func (s Site) Cols() int { return s.Linears[0].Weight.Cols }

// Sites lists the vectors of a block in the order of the computation. An expert reads the tokens that are routed to it, which
// are taken to be spread evenly.
func Sites(b arch.Block) []Site {
	switch b := b.(type) {
	case *arch.Attention:
		return sites(site(1, &b.Q, &b.K, &b.V, &b.Gate), site(1, &b.O))
	case *arch.LatentAttention:
		down := site(1, &b.QDown, &b.KVDown, &b.KRope)
		if b.QRank == 0 {
			return sites(site(1, &b.QNope, &b.QRope, &b.KVDown, &b.KRope), site(1, &b.KNope, &b.V), site(1, &b.O))
		}
		return sites(down, site(1, &b.QNope, &b.QRope), site(1, &b.KNope, &b.V), site(1, &b.O))
	case *arch.MLP:
		return mlpSites(b, 1)
	case *arch.Experts:
		all := sites(site(1, &b.Router))
		for j := range b.Experts {
			all = append(all, mlpSites(&b.Experts[j], float64(b.TopK)/float64(len(b.Experts)))...)
		}
		if b.Shared != nil {
			shared := mlpSites(b.Shared, 1)
			shared[0].Linears = append(shared[0].Linears, present(&b.SharedGate)...)
			all = append(all, shared...)
		}
		return all
	case *arch.Sum:
		var all []Site
		for _, x := range b.Branches {
			all = append(all, Sites(x.Block)...)
		}
		return all
	case *arch.Injection:
		return sites(site(1, &b.Gate), site(1, &b.Out))
	case *arch.ShortConv:
		return sites(site(1, &b.In), site(1, &b.Out))
	case *arch.DeltaNet:
		return sites(site(1, &b.QKV, &b.Z, &b.B, &b.A), site(1, &b.Out))
	case *arch.Mamba2:
		return sites(site(1, &b.Z, &b.XBC, &b.Dt), site(1, &b.Out))
	}
	return nil
}

func mlpSites(m *arch.MLP, share float64) []Site {
	return sites(site(share, &m.Gate, &m.Up), site(share, &m.Down))
}

func site(share float64, linears ...*arch.Linear) Site { return Site{present(linears...), share} }

func sites(all ...Site) []Site { return all }

// present are the linear layers that have a tensor.
func present(linears ...*arch.Linear) (list []*arch.Linear) {
	for _, l := range linears {
		if l.Weight.Tensor != "" {
			list = append(list, l)
		}
	}
	return list
}

// linear is a product of n vectors with a matrix, which is read once.
func linear(n float64, rows, cols int) (w Work) {
	size := float64(rows) * float64(cols)
	w[Product], w[Memory] = 2*n*size, 4*size
	return w
}

// Text is a number of windows of one length.
type Text struct{ Windows, Length int }

// Tokens is the number of tokens.
func (t Text) Tokens() float64 { return float64(t.Windows) * float64(t.Length) }

// groups is how often a pass reads every weight.
func (t Text) groups() float64 {
	per := max(1, groupTokens/max(t.Length, 1))
	return float64((t.Windows + per - 1) / per)
}

// Linears is a pass of a text through the linear layers of a block. Every group reads the weights that any of its tokens needs.
func (t Text) Linears(b arch.Block) (w Work) {
	for _, s := range Sites(b) {
		read := t.groups() * (1 - math.Pow(1-s.Share, t.Tokens()/t.groups()))
		for _, l := range s.Linears {
			x := linear(s.Share*t.Tokens(), l.Weight.Rows, l.Weight.Cols)
			x[Memory] *= read
			w = w.Plus(x)
		}
	}
	return w
}

// queryRows is how many queries are scored at a time, all of them against the keys that any of them attends to.
const queryRows = 64

// scores is the number of scores that a head computes for a text, where a query attends to its own position and those before it,
// within window positions and within a chunk; 0 means unbounded.
func (t Text) scores(window, chunk int) (pairs float64) {
	for i := 0; i < t.Length; i += queryRows {
		first, end := 0, min(i+queryRows, t.Length)
		if window > 0 {
			first = max(first, i-window+1)
		}
		if chunk > 0 {
			first = max(first, i-i%chunk)
		}
		pairs += float64(end-i) * float64(end-first)
	}
	return float64(t.Windows) * pairs
}

// attend is the work of heads with keys of dim and values of valueDim elements, given their scores: a product for the scores,
// a softmax, and a product for the results.
func attend(heads, dim, valueDim int, scores float64) (w Work) {
	scores *= float64(heads)
	w[Product], w[Element] = 2*scores*float64(dim+valueDim), scores
	return w
}

// Mixing is the part of a block other than its linear layers, for a text.
func (t Text) Mixing(b arch.Block) (w Work) {
	n := t.Tokens()
	switch b := b.(type) {
	case *arch.Attention:
		return attend(b.Heads, b.HeadDim, b.HeadDim, t.scores(b.Window, b.Chunk))
	case *arch.LatentAttention:
		return attend(b.Heads, b.NopeDim+b.RopeDim, b.ValueDim, t.scores(0, 0))
	case *arch.MLP:
		w[Element] = n * float64(b.Intermediate)
	case *arch.Experts:
		w[Element] = n * float64(b.TopK*b.Experts[0].Intermediate)
		if b.Shared != nil {
			w[Element] += n * float64(b.Shared.Intermediate)
		}
	case *arch.Injection:
		w[Element] = n * float64(b.Gate.Weight.Rows)
	case *arch.Sum:
		for _, x := range b.Branches {
			w = w.Plus(t.Mixing(x.Block))
		}
	case *arch.ShortConv:
		return convolve(n, b.Out.Weight.Cols, len(b.Taps))
	case *arch.DeltaNet:
		w = convolve(n, b.QKV.Weight.Rows, len(b.Taps)).Plus(deltaRule(b).Times(n))
		w[Element] = n * float64(b.QKV.Weight.Rows+b.Z.Weight.Rows)
	case *arch.Mamba2:
		w = convolve(n, b.XBC.Weight.Rows, len(b.Taps)).Plus(scan(b).Times(n))
		w[Element] = n * float64(b.XBC.Weight.Rows+b.Z.Weight.Rows)
	}
	return w
}

// convolve is a causal convolution of n tokens in every channel.
func convolve(n float64, channels, taps int) Work {
	return Of(Scalar, 2*n*float64(channels)*float64(taps))
}

const (
	// chunkTokens is how many tokens of a recurrence are computed together, scanHeads how many heads of Mamba 2 that share keys.
	chunkTokens, scanHeads = 32, 4
)

// deltaRule is the recurrence of a delta net for a token. Each head reads the state for the output and for the change, and advances
// it once for a chunk; within a chunk, tokens are compared with one another, and a triangular matrix is inverted.
func deltaRule(b *arch.DeltaNet) Work {
	keys, values := float64(b.KeyDim), float64(b.ValueDim)
	w := Of(Product, 2*(3*keys*values+chunkTokens*(2*values+2*keys*float64(b.KeyHeads)/float64(b.ValueHeads))))
	w[Scalar] = chunkTokens + 2*values + chunkTokens*chunkTokens/3
	return w.Times(float64(b.ValueHeads))
}

// scan is the recurrence of Mamba 2 for a token: as deltaRule, without the change and the inverse.
func scan(b *arch.Mamba2) Work {
	keys, values := float64(b.State), float64(b.HeadDim)
	w := Of(Product, 2*(2*keys*values+chunkTokens*(values+keys/float64(min(scanHeads, b.Heads/b.Groups)))))
	w[Scalar] = chunkTokens
	return w.Times(float64(b.Heads))
}

// block is a pass of a text through a block.
func (t Text) block(b arch.Block) Work { return t.Linears(b).Plus(t.Mixing(b)) }

// Layer is a pass of a text through a layer.
func (t Text) Layer(l arch.Layer) (w Work) {
	for _, b := range l {
		w = w.Plus(t.block(b.Block))
	}
	return w
}

// Layers is a pass of a text through all layers from one on.
func (t Text) Layers(d *arch.Decoder, from int) (w Work) {
	for _, l := range d.Layers[from:] {
		w = w.Plus(t.Layer(l))
	}
	return w
}

// back is the way back of a gradient through a layer, which computes the forward pass again. With weights, the gradients of the
// matrices are computed as well.
func (t Text) back(l arch.Layer, weights bool) (w Work) {
	for _, b := range l {
		passes := 2.0
		if weights {
			passes = 3
		}
		// Of the mixing, the way back computes each product twice, once for each of its factors, and the scores or states again.
		mixing := t.Mixing(b.Block)
		products := mixing[Product]
		mixing = mixing.Times(2)
		mixing[Product] = 3.5 * products
		w = w.Plus(t.Linears(b.Block).Times(passes), mixing)
	}
	return w
}

// Logits is the head applied to the tokens of a text, and the given number of functions of every logit.
func (t Text) Logits(d *arch.Decoder, functions float64) Work {
	w := linear(t.Tokens(), d.Vocab, d.Hidden)
	w[Element] += functions * t.Tokens() * float64(d.Vocab)
	return w
}

// Backward is the way back of gradients through all layers down to one, including the forward pass inside each; weights adds the
// gradients of the matrices.
func (t Text) Backward(d *arch.Decoder, to int, weights bool) (w Work) {
	for _, l := range d.Layers[to:] {
		w = w.Plus(t.back(l, weights))
	}
	return w
}
