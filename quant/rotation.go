package quant

import "fmt"

// Rotation turns the residual stream, and the values of every attention head, by a random Hadamard matrix: no channel
// stands out any more, which helps error feedback (gptq) and harms a weighted search.
//
// R1 and R2 of "SpinQuant" (ICLR 2025), with the matrices of "QuaRot" (NeurIPS 2024) instead of learned ones. The
// rotations that these papers compute while the model runs cannot be stored.
type Rotation struct {
	Seed uint64 `json:"seed" jsonschema_description:"Chooses the signs of the rotations."`
	// Residual is R1, Values is R2.
	Residual bool `json:"residual" jsonschema_description:"Rotate the residual stream."`
	Values   bool `json:"values" jsonschema_description:"Rotate the values of attention heads."`
}

// NewRotation returns the defaults.
func NewRotation() *Rotation { return &Rotation{Seed: 1, Residual: true, Values: true} }

// Name implements Method.
func (*Rotation) Name() string { return "rotation" }

// Closeness implements Method.
func (*Rotation) Closeness() Closeness { return Closeness{Floats: Turned} }

// Needs implements Method.
func (*Rotation) Needs() Needs { return Model }

// Validate implements Method.
func (r *Rotation) Validate() error {
	if !r.Residual && !r.Values {
		return fmt.Errorf("residual and values are both false; set one or remove the method")
	}
	return nil
}

// Admits implements Rotator: error feedback gains from uniform channels; foldings and weighted searches, which exploit
// channels that stand out, lose.
func (r *Rotation) Admits(q Quantizer) bool { return q.Name() == new(GPTQ).Name() }

// Stream implements Rotator.
func (r *Rotation) Stream(n int) *Hadamard {
	if !r.Residual {
		return nil
	}
	return NewHadamard(n, mix(r.Seed))
}

// Head implements Rotator.
func (r *Rotation) Head(n int) *Hadamard {
	if !r.Values {
		return nil
	}
	return NewHadamard(n, mix(r.Seed+1<<63))
}
