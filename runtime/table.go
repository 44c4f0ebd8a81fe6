package runtime

// Table is the storage form of the embedding table.
type Table struct {
	Rows, Cols int
	// Codes are the stored rows. They are bytes of the text model's weights unless the table has a file of its own.
	Codes []byte
	// Scales counts scales and zero terms, AlphaBytes is their size.
	Scales     int
	AlphaBytes int64
}

// Table describes the embedding table.
func (p *Package) Table() Table {
	e := p.embedding
	t := Table{Rows: e.vocab, Cols: e.hidden, Codes: e.codes, Scales: e.scales(), AlphaBytes: 4 * int64(e.scales())}
	if e.file == nil {
		if tie, err := parseTie(p.Config.Tie); err == nil && tie.AlphaDType == "fp16" {
			t.AlphaBytes /= 2
		}
	}
	return t
}
