package arch

// Stage is a part of a tower of convolutions. Its states are a square of places with a row of elements each.
//
//	x = the convolutions of Enter, one after the other
//	then each of Blocks
type Stage struct {
	Enter  []Convolution
	Blocks []StageBlock
}

// StageBlock is a block of a stage.
//
//	x = Mix(x), if there is one
//	x = the layer Attend of x, if it has branches
//	x = x + Factors ⊙ Down · act(Up · Near(x))
type StageBlock struct {
	Mix     *Convolution // or nil
	Attend  Layer
	Near    Convolution
	MLP     MLP    // without a gate
	Factors Weight // a number for each element of a row
}

// Convolution is one of a square with zeros around it, as many as keep its size if Stride is 1.
//
//	y = act(Norm(s ⊙ (Weight * x + Bias))), s = sigmoid(Expand · relu(Reduce · mean of all places)), or 1 without Reduce
type Convolution struct {
	// Linear is [Out, In*Kernel*Kernel] in the order [channel, y, x], or with Each [Out, Kernel*Kernel]: then each of the In channels alone
	// makes Out/In of the results, which follow one another.
	Linear
	In, Kernel, Stride int
	Each               bool
	ChannelsLast       bool // the order is [y, x, channel]
	Reduce, Expand     Linear
	Norm               *Norm      // of the channels of a place, or nil
	Activation         Activation // or empty
}

// Width returns the elements of a row of the states after a stage.
func (s *Stage) Width() int { return s.Enter[len(s.Enter)-1].Weight.Rows }

// Out returns the edge of the result for a square.
func (c *Convolution) Out(side int) int { return (side-1)/c.Stride + 1 }

// weights calls f with every slot that needs a tensor.
func (c *Convolution) weights(f func(Weight)) {
	c.Linear.weights(f)
	some(f, c.Reduce.Weight, c.Reduce.Bias, c.Expand.Weight, c.Expand.Bias)
	c.Norm.vectors(f)
}

// weights calls f with every slot that needs a tensor.
func (s *Stage) weights(f func(Weight)) {
	for i := range s.Enter {
		s.Enter[i].weights(f)
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.Mix != nil {
			b.Mix.weights(f)
		}
		b.Attend.weights(f)
		b.Near.weights(f)
		b.MLP.linears(func(_ string, l *Linear) { l.weights(f) })
		some(f, b.Factors)
	}
}
