package kernel

import (
	"math"
	"slices"
)

// Scoring is what becomes of the scores of experts.
type Scoring uint8

// The scorings: before the choice scores are left as they are, or get their softmax, or each its sigmoid; or those of the chosen get their
// softmax afterwards.
const (
	ScorePlain Scoring = iota
	ScoreSoftmax
	ScoreSigmoid
	ScoreTopKSoftmax
)

// Routing chooses the experts of a token by their scores.
type Routing struct {
	TopK           int
	Scoring        Scoring
	Normalize      bool    // divides weights by their sum and Epsilon
	Epsilon, Scale float64 // Scale multiplies weights
	// With Groups > 1 only experts of the TopGroups best groups can be chosen. Groups are ranked by the sum of their GroupTop best experts.
	Groups, TopGroups, GroupTop int
}

// Choose writes the TopK best experts to chosen, those with the largest sum of score and correction [experts], or nil. It leaves in scores
// [experts] what Weigh takes. Ties between experts or groups go to the first. It reports false where fewer are numbers: chosen is arbitrary then.
// free is memory for experts and groups.
func (r *Routing) Choose(chosen []int32, scores, correction, free []float32) bool {
	switch r.Scoring {
	case ScoreSoftmax:
		Softmax(scores)
	case ScoreSigmoid:
		for i, x := range scores {
			scores[i] = float32(1 / (1 + Exp(-float64(x))))
		}
	}
	good := free[:len(scores)]
	copy(good, scores)
	if correction != nil {
		Add(good, good, correction)
	}
	if r.Groups > 1 {
		r.restrict(good, free[len(scores):][:r.Groups])
	}
	return len(TopK(chosen, good, r.TopK)) == r.TopK
}

// restrict gives the experts outside the best groups the lowest scores.
func (r *Routing) restrict(good, groups []float32) {
	size := len(good) / r.Groups
	var best []int32
	for g := range groups {
		of := good[g*size : (g+1)*size]
		groups[g] = 0
		best = TopK(best, of, r.GroupTop)
		for _, j := range best {
			groups[g] += of[j]
		}
	}
	keep := make([]bool, r.Groups)
	for _, g := range TopK(best, groups, r.TopGroups) {
		keep[g] = true
	}
	for g, ok := range keep {
		for j := g * size; j < (g+1)*size && !ok; j++ {
			good[j] = float32(math.Inf(-1))
		}
	}
}

// Weigh writes the weights of the chosen, and leaves in their scores those from before Normalize and Scale.
func (r *Routing) Weigh(weights, scores []float32, chosen []int32) {
	sum := 0.0
	for i, j := range chosen {
		weights[i] = scores[j]
		sum += float64(scores[j])
	}
	if r.Scoring == ScoreTopKSoftmax {
		Softmax(weights)
		sum = 1
		for i, j := range chosen {
			scores[j] = weights[i]
		}
	}
	factor := r.Scale
	if r.Normalize {
		factor /= sum + r.Epsilon
	}
	for i, w := range weights {
		weights[i] = float32(float64(w) * factor)
	}
}

// WeighBack writes the gradients of what Weigh has left in the scores of the chosen, for dw, those of the weights. With v these scores, F the Scale
// and S the sum of v plus Epsilon they are F dw, or if weights are normalized (F/S) (dw - dw·v/S).
func (r *Routing) WeighBack(dv []float64, scores []float32, chosen []int32, dw []float32) {
	sum, dot := r.Epsilon, 0.0
	for i, j := range chosen {
		sum += float64(scores[j])
		dot += float64(float64(dw[i]) * float64(scores[j]))
	}
	factor, level := r.Scale, 0.0
	if r.Normalize {
		factor, level = factor/sum, dot/sum
	}
	for i := range chosen {
		dv[i] = factor * (float64(dw[i]) - level)
	}
}

// ChooseBack writes the gradients of the scores that Choose was given to d, which has zeros, for dv, those of the scores v that Weigh has left of
// the chosen: dv, or where they are shares v (dv - dv·v), also those of the others if these have shares, or of a sigmoid dv v (1-v).
func (r *Routing) ChooseBack(d, scores []float32, chosen []int32, dv []float64) {
	total := 0.0
	for i, j := range chosen {
		total += float64(dv[i] * float64(scores[j]))
	}
	if r.Scoring == ScoreSoftmax {
		for j, p := range scores {
			d[j] = float32(-total * float64(p))
		}
	}
	for i, j := range chosen {
		switch v := float64(scores[j]); r.Scoring {
		case ScoreSoftmax, ScoreTopKSoftmax:
			d[j] = float32(v * (dv[i] - total))
		case ScoreSigmoid:
			d[j] = float32(dv[i] * float64(v*(1-v)))
		default:
			d[j] = float32(dv[i])
		}
	}
}

// Unweighted is what a token whose scores are not numbers gets: the first experts, and weights that are not numbers.
func Unweighted(chosen []int32, weights []float32) {
	for i := range chosen {
		chosen[i], weights[i] = int32(i), float32(math.NaN())
	}
}

// ExpertsStep is a mixture of experts without those that all tokens share: Dst [Rows, hidden] is the sum over the chosen experts, in the order of
// their numbers and from 0 on, of weight · (SiLU(Src · Gateᵀ) * (Src · Upᵀ)) · Downᵀ. Scores are [Rows, experts].
type ExpertsStep struct {
	Dst, Src, Scores  int
	Routing           Routing
	Correction, Gains Factor // vectors of all experts, or without Data; Gains multiply weights
	Wide              int    // rows of Gate and Up
	Gate, Up, Down    []Factor
}

// ExpertsBackStep is the way back through a mixture, whose Dst and Down it does not read: for DOut, the gradient of the result, DSrc gets the
// gradient of Src, without that through the scores, and DScores theirs. DSrc is the sum of the gradients of the experts as Dst is that of their outputs.
//
// Matrices of choices [Rows, TopK*width] have a row of width elements for each, by expert, and within one in the order of the tokens.
type ExpertsBackStep struct {
	Of                         *ExpertsStep
	DOut, DSrc, DScores        int
	GateBack, UpBack, DownBack []Factor // Gate, Up and Down by position
	// Of choices: DGate and DUp get the gradients of the products with Gate and Up, and Inner what Down multiplies. In gets the rows of Src, and
	// DDown those of DOut times their weights, unless they are 0.
	DGate, DUp, Inner, In, DDown int
	Ends                         []int32 // gets for every expert how many choices are those of it and of the experts before it
}

func (*ExpertsStep) step()     {}
func (*ExpertsBackStep) step() {}

// multiplications are those of so many products of the choices of so many rows.
func (x *ExpertsStep) multiplications(products, rows, hidden int) int {
	return products * rows * x.Routing.TopK * x.Wide * hidden
}

// choose returns the choices of rows, their weights, and what is left of the scores.
func (x *ExpertsStep) choose(scores []float32, rows int) (chosen []int32, weights, left []float32) {
	r, count := &x.Routing, len(x.Gate)
	chosen, weights, left = make([]int32, rows*r.TopK), make([]float32, rows*r.TopK), slices.Clone(scores)
	free := make([]float32, count+max(r.Groups, 1))
	for i := range rows {
		at, w, s := chosen[i*r.TopK:(i+1)*r.TopK], weights[i*r.TopK:(i+1)*r.TopK], left[i*count:(i+1)*count]
		if r.Choose(at, s, x.Correction.Data, free) {
			r.Weigh(w, s, at)
		} else {
			Unweighted(at, w)
		}
		for c, j := range at {
			if x.Gains.Data != nil {
				w[c] *= x.Gains.Data[j]
			}
		}
	}
	return chosen, weights, left
}

// members are the choices of expert j, and pick is their rows of a matrix of tokens.
func (x *ExpertsStep) members(chosen []int32, j int) (mine []int) {
	for c, expert := range chosen {
		if int(expert) == j {
			mine = append(mine, c)
		}
	}
	return mine
}

func (x *ExpertsStep) pick(src []float32, mine []int, hidden int) (rows []float32) {
	for _, c := range mine {
		rows = append(rows, src[c/x.Routing.TopK*hidden:][:hidden]...)
	}
	return rows
}

// scatter adds rows to those of the tokens of choices.
func (x *ExpertsStep) scatter(dst, rows []float32, mine []int, hidden int) {
	for i, c := range mine {
		row := dst[c/x.Routing.TopK*hidden:][:hidden]
		Add(row, row, rows[i*hidden:(i+1)*hidden])
	}
}

// do computes the step of so many rows of `hidden` elements.
func (x *ExpertsStep) do(dst, src, scores []float32, rows, hidden int) {
	chosen, weights, _ := x.choose(scores, rows)
	clear(dst)
	for j := range x.Gate {
		mine := x.members(chosen, j)
		n, in := len(mine), x.pick(src, mine, hidden)
		if n == 0 {
			continue
		}
		inner, up, out := make([]float32, n*x.Wide), make([]float32, n*x.Wide), make([]float32, n*hidden)
		x.Gate[j].packed(x.Wide, hidden).MulT(inner, in, n, x.Wide, hidden, 0, x.Wide)
		x.Up[j].packed(x.Wide, hidden).MulT(up, in, n, x.Wide, hidden, 0, x.Wide)
		SiLU(inner, inner)
		Mul(inner, inner, up)
		x.Down[j].packed(hidden, x.Wide).MulT(out, inner, n, hidden, x.Wide, 0, hidden)
		for i, c := range mine {
			Scale(out[i*hidden:(i+1)*hidden], out[i*hidden:(i+1)*hidden], weights[c])
		}
		x.scatter(dst, out, mine, hidden)
	}
}

// do computes the step of so many rows of `hidden` elements.
func (x *ExpertsBackStep) do(m [][]float32, rows, hidden int) {
	of, k, wide, at := x.Of, x.Of.Routing.TopK, x.Of.Wide, 0
	chosen, weights, left := of.choose(m[of.Scores], rows)
	dWeights := make([]float32, len(chosen))
	clear(m[x.DSrc])
	for j := range of.Gate {
		mine := of.members(chosen, j)
		n, in, d := len(mine), of.pick(m[of.Src], mine, hidden), of.pick(m[x.DOut], mine, hidden)
		from := at
		at += n
		x.Ends[j] = int32(at)
		if n == 0 {
			continue
		}
		gate, up, inner := m[x.DGate][from*wide:at*wide], m[x.DUp][from*wide:at*wide], m[x.Inner][from*wide:at*wide]
		of.Gate[j].packed(wide, hidden).MulT(gate, in, n, wide, hidden, 0, wide)
		of.Up[j].packed(wide, hidden).MulT(up, in, n, wide, hidden, 0, wide)
		SiLU(inner, gate)
		Mul(inner, inner, up)
		dInner, dIn, more := make([]float32, n*wide), make([]float32, n*hidden), make([]float32, n*hidden)
		MatMul(dInner, d, x.DownBack[j].Data, n, wide, hidden, wide, hidden, x.DownBack[j].Stride)
		for i, c := range mine {
			var lanes [4]float64
			row := dInner[i*wide : (i+1)*wide]
			for p, v := range inner[i*wide : (i+1)*wide] {
				lanes[p%4] += float64(float64(v) * float64(row[p]))
			}
			dWeights[c] = float32(lanes[0] + lanes[1] + lanes[2] + lanes[3])
			Scale(row, row, weights[c])
			Scale(d[i*hidden:(i+1)*hidden], d[i*hidden:(i+1)*hidden], weights[c])
		}
		SiLUBack(dInner, gate, up)
		MatMul(dIn, gate, x.GateBack[j].Data, n, hidden, wide, hidden, wide, x.GateBack[j].Stride)
		MatMul(more, up, x.UpBack[j].Data, n, hidden, wide, hidden, wide, x.UpBack[j].Stride)
		Add(dIn, dIn, more)
		of.scatter(m[x.DSrc], dIn, mine, hidden)
		if x.In != 0 {
			copy(m[x.In][from*hidden:], in)
		}
		if x.DDown != 0 {
			copy(m[x.DDown][from*hidden:], d)
		}
	}
	clear(m[x.DScores])
	dv, count := make([]float64, k), len(of.Gate)
	for i := range rows {
		at, dw, scores := chosen[i*k:(i+1)*k], dWeights[i*k:(i+1)*k], left[i*count:(i+1)*count]
		for c, j := range at {
			if of.Gains.Data != nil {
				dw[c] *= of.Gains.Data[j]
			}
		}
		of.Routing.WeighBack(dv, scores, at, dw)
		of.Routing.ChooseBack(m[x.DScores][i*count:(i+1)*count], scores, at, dv)
	}
}

// packed is a factor [n, k] in rows or panels.
func (f *Factor) packed(n, k int) *Packed {
	p := &Packed{panels: f.Data, rows: n, cols: k}
	if f.Read != nil {
		f.Read(0, n, func(panels []float32) bool { p.panels = slices.Clone(panels); return true })
	}
	if f.Layout == ByRow {
		p = &Packed{}
		p.Pack(f.Data, n, k, f.Stride)
	}
	return p
}
