package verify

import _ "embed"

// BuiltIn is the built-in evaluation text: inaugural addresses of presidents of the United States, in the public
// domain.
//
//go:embed text.txt
var BuiltIn string

// Options configures the measurements and the checks.
type Options struct {
	// Text is evaluated; TextName and TextSHA256 name it in reports.
	Text, TextName, TextSHA256 string
	// Window is the number of tokens of a fresh context, Windows how many of them are taken, spread evenly over
	// the text; 0 takes all windows of the text.
	Window, Windows int
	// ScoreFrom is the first position of a window whose prediction counts; others are context only. 0 scores all.
	ScoreFrom int
	// DecodeTokens is the number of last tokens of a window that are also fed one by one.
	DecodeTokens int
	// Goldens are outputs recorded elsewhere that the source must reproduce.
	Goldens []Golden
	// Bits is the width of the body, 2, 3, 4, 5, 6, 8 or 16, which determines the limits that Checks do not
	// set.
	Bits    int
	Checks  Checks
	Threads int
	// Memory is the limit, in bytes, that sizes the buffers of an evaluation: a quarter each for the cached weights of the
	// two sessions and for the codes of the one in int8, a sixteenth each for codes of experts, an eighth for tiles of logits.
	// The reference has its own limit, and the hidden states of a batch of windows, which the sessions and the reference hold, do not grow with the text.
	// Mapped files, the graph, KV caches and the text itself are not included.
	Memory int64
	// Progress is called with the number of positions evaluated so far; it may be nil.
	Progress func(done, total int64)
	// Checked is called with the name of every check that is done; it may be nil.
	Checked func(name string)
}
