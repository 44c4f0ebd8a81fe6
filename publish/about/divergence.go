package about

// Divergence describes how far the predictions of a package are from those of its source on a text. Divergences are
// KL(source to package as shipped) in nats.
type Divergence struct {
	// Text is the name of the text, which was cut into Windows contexts of Window tokens; Scored positions were compared.
	Text    string `json:"text"`
	SHA256  string `json:"sha256"`
	Window  int    `json:"window"`
	Windows int    `json:"windows"`
	Scored  int    `json:"scored"`
	// Shares are quantiles over all positions, Positions are means over ranges of positions within a context.
	Shares    []DivergenceShare `json:"shares"`
	Positions []DivergenceRange `json:"positions"`
	// Passages are the places where package and source differ most, the largest divergence first. The report in a package
	// has those of the built-in text only, because another text may not be meant for publication.
	Passages []Passage `json:"passages,omitempty"`
}

// DivergenceShare is a quantile: a share of all positions diverges by at most KL.
type DivergenceShare struct {
	Share float64 `json:"share"`
	KL    float64 `json:"kl"`
}

// DivergenceRange describes the positions From to To of all contexts, counted from 0: the mean divergence and its 90 %
// quantile.
type DivergenceRange struct {
	From int     `json:"from"`
	To   int     `json:"to"`
	Mean float64 `json:"mean"`
	High float64 `json:"high"`
}

// Passage is a position of the text with the most likely next tokens.
type Passage struct {
	Window   int     `json:"window"`
	Position int     `json:"position"`
	KL       float64 `json:"kl"`
	// Before is the text up to the position, shortened to its end; Next is the token that follows in the text.
	Before  string        `json:"before"`
	Next    string        `json:"next"`
	Source  []Probability `json:"source"`
	Package []Probability `json:"package"`
}

// Probability is that of a next token, from 0 to 1.
type Probability struct {
	Token       string  `json:"token"`
	Probability float64 `json:"probability"`
}
