package verify

import "fmt"

// windows cuts the text, encoded by the package's own tokenizer, into contexts: some spread evenly over it, or all, one after
// another as llama-perplexity has them. If the tokenizer adds a bos, it precedes each window and is not scored as a prediction target.
func (s *Subject) windows() ([][]int32, error) {
	prefix := s.Package.Tokenizer.Prefix()
	ids := s.ids()[len(prefix):]
	body := s.Options.Window - len(prefix)
	n, stride := len(ids)/max(1, body), body
	if body < 2 || n < 1 {
		return nil, fmt.Errorf("the text has %d tokens, too few for a window of %d", len(ids), s.Options.Window)
	}
	if some := s.Options.Windows; some > 0 && some < n {
		n, stride = some, len(ids)/some
	}
	var list [][]int32
	for i := range n {
		w := append([]int32{}, prefix...)
		list = append(list, append(w, ids[i*stride:i*stride+body]...))
	}
	return list, nil
}

// ids returns the ids of the text, from which several checks cut windows.
func (s *Subject) ids() []int32 {
	if s.encoded.ids == nil || s.encoded.text != s.Options.Text {
		s.encoded = encoded{s.Options.Text, s.Package.Tokenizer.Encode(s.Options.Text)}
	}
	return s.encoded.ids
}

// encoded is a text and its ids.
type encoded struct {
	text string
	ids  []int32
}
