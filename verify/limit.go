package verify

// Limit is the option max of a check: the largest acceptable value.
type Limit struct {
	Max *float64 `json:"max,omitempty" jsonschema_description:"Limit; by bit width if absent."`
}

// or returns the limit, and value if the recipe sets none.
func (l Limit) or(value float64) float64 {
	if l.Max != nil {
		return *l.Max
	}
	return value
}

// byBits holds default limits by the bit width of the body. They are about three times the loss of round-to-nearest with
// blocks of 64 and an 8-bit table on the small trained models of the tests (docs/verification.md has the table). At 2
// bits they reject plain rounding of such a model, which writes text that no longer follows the prompt.
type byBits map[int]float64

func (l Limit) notNegative() (key, problem string) {
	if l.Max != nil && !(*l.Max >= 0) {
		return "max", "must not be negative"
	}
	return "", ""
}
