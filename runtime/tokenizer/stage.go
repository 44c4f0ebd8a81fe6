package tokenizer

// stage is one step of the engine's pre-tokenizer. It calls yield with the pieces of s, in order; s is not empty, and
// neither are the pieces. What the last stage yields is merged on its own.
type stage interface {
	split(s string, yield func(string))
}

// runStages sends s through the stages.
func runStages(stages []stage, s string, yield func(string)) {
	if len(stages) == 0 {
		yield(s)
		return
	}
	if len(stages) == 1 {
		stages[0].split(s, yield)
		return
	}
	stages[0].split(s, func(piece string) { runStages(stages[1:], piece, yield) })
}
