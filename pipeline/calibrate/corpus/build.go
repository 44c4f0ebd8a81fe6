package corpus

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Options are the windows that Build is to make, and their tokens.
type Options struct {
	// Tokens is the size of the corpus, Window that of one window, prefix included. There are Tokens/Window windows.
	Tokens, Window int
	// Seed chooses among windows that are as good as each other.
	Seed uint64
	// Prefix begins every window: the tokens that the tokenizer puts before a text, if any.
	Prefix []int32
	// Encode returns the tokens of a text, without those that a tokenizer adds at its ends.
	Encode func(text string) ([]int32, error)
	// Render applies the chat template; nil if the model has none. Its result contains the control tokens.
	Render func(messages []Message) (string, error)
	// EndOfText separates documents that share a window; if it is -1, a blank line does.
	EndOfText int32
	// Resolve makes a Data.Path usable from the working directory; nil leaves it as it is.
	Resolve func(path string) string

	separator []int32
}

// maxTokens bounds a corpus. Saved, it has about six bytes a token.
const maxTokens = 1 << 24

func (o *Options) validate() error {
	switch {
	case o.Encode == nil:
		return fmt.Errorf("internal error: no tokenizer for calibration data")
	case o.Window <= len(o.Prefix):
		return fmt.Errorf("windows of %d tokens leave no room after a prefix of %d", o.Window, len(o.Prefix))
	case o.Tokens < o.Window:
		return fmt.Errorf("%d tokens of calibration data are less than one window of %d", o.Tokens, o.Window)
	case o.Tokens > maxTokens:
		return fmt.Errorf("%d tokens of calibration data; the limit is %d", o.Tokens, maxTokens)
	case o.EndOfText < -1:
		return fmt.Errorf("internal error: end-of-text token %d", o.EndOfText)
	}
	return nil
}

// Build makes the windows of the files in list, in that order. Cancellation of the context takes effect between documents.
// Errors name the file.
func Build(ctx context.Context, list []Data, o Options) (_ *Corpus, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no calibration data")
	}
	if o.separator = []int32{o.EndOfText}; o.EndOfText < 0 {
		if o.separator, err = o.Encode("\n\n"); err != nil {
			return nil, err
		}
	}
	domains := make([]*domain, 0, len(list))
	defer func() {
		for _, d := range domains {
			err = errors.Join(err, d.closer.Close())
		}
	}()
	for _, data := range list {
		d, err := open(ctx, data, &o)
		if err != nil {
			return nil, err
		}
		domains = append(domains, d)
		same := func(e *domain) bool {
			return e.sha256 == d.sha256 && e.Column == d.Column && e.Chat == d.Chat
		}
		if i := slices.IndexFunc(domains, same); i < len(domains)-1 {
			return nil, fmt.Errorf("%s and %s are the same calibration data", domains[i].Path, d.Path)
		}
	}
	c := new(Corpus)
	if err := c.fill(ctx, domains, &o); err != nil {
		return nil, err
	}
	return c, nil
}

// fill gives every domain its share. Windows that a domain cannot fill go to the other domains, again by weight.
func (c *Corpus) fill(ctx context.Context, domains []*domain, o *Options) error {
	want := o.Tokens / o.Window
	weights := make([]float64, len(domains))
	for i, d := range domains {
		weights[i] = d.Weight
	}
	promised := shares(weights, want)
	for round, left := promised, want; ; round = shares(weights, left) {
		short := false
		for i, d := range domains {
			if weights[i] == 0 || len(d.windows) == round[i] {
				continue
			}
			if err := d.fill(ctx, round[i], o); err != nil {
				return err
			}
			if n := len(d.windows); n < round[i] {
				weights[i] = 0
				left -= n
				short = true
			}
		}
		if !short {
			break
		}
	}
	found := 0
	for i, d := range domains {
		if d.crlf > 0 {
			c.warn("%s: %d of %d documents have CRLF line ends, which are kept; text with LF gives different tokens", d.Path, d.crlf, d.documents)
		}
		switch n := len(d.windows); {
		case promised[i] == 0 && n == 0:
			c.warn("%s: no window, because its share of %d windows is less than one", d.Path, want)
		case n < promised[i]:
			c.warn("%s: fills %d of %d windows with its %d tokens", d.Path, n, promised[i], d.tokens)
		}
		found += d.tokens
		domain := d.result()
		for _, w := range d.windows {
			domain.Tokens += len(w)
		}
		c.Domains = append(c.Domains, domain)
		c.Windows = append(c.Windows, d.windows...)
	}
	switch n := len(c.Windows); {
	case n == 0:
		return fmt.Errorf("the calibration data has %d tokens, too few for one window of %d", found, o.Window)
	case n < want:
		c.warn("the data fills %d of %d windows: %d of %d tokens", n, want, n*o.Window, want*o.Window)
	}
	return nil
}

func (c *Corpus) warn(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}
