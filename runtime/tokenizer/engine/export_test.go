package engine

// Normalize is what the normalizer makes of a text.
func (t *Tokenizer) Normalize(text string) (string, error) { return t.normalizer.normalize(text) }
