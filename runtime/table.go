package runtime

// Table says how the embedding table is stored.
type Table struct {
	Rows, Cols int
	// Codes are the stored rows, in the bytes of Weights unless the table has a file of its own.
	Codes []byte
	// Scales counts scales and zero terms, AlphaBytes is what they take.
	Scales     int
	AlphaBytes int64
}

// Table describes the embedding table.
func (p *Package) Table() Table {
	e := p.embedding
	t := Table{Rows: e.vocab, Cols: e.hidden, Codes: e.codes, Scales: len(e.alpha), AlphaBytes: 4 * int64(len(e.alpha))}
	if e.file == nil {
		if tie, err := parseTie(p.Config.Tie); err == nil && tie.AlphaDType == "fp16" {
			t.AlphaBytes /= 2
		}
	}
	return t
}
