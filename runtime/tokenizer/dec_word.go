package tokenizer

import (
	"encoding/json"
	"strings"
)

// cleanUp removes spaces before punctuation marks and before the ends of contractions, as the decoders WordPiece and CTC
// do in each token.
func cleanUp(s string) string {
	for i := 0; i < len(cleaned); i += 2 {
		s = strings.ReplaceAll(s, cleaned[i], cleaned[i+1])
	}
	return s
}

// cleaned are texts and their replacements, which are made one after the other: the result of one may begin another.
var cleaned = []string{
	" .", ".", " ?", "?", " !", "!", " ,", ",", " ' ", "'", " n't", "n't", " 'm", "'m", " do not", " don't", " 's", "'s", " 've", "'ve", " 're", "'re",
}

// readWordPieceDecoder reads the decoder WordPiece: tokens are words, which spaces part, unless they begin with the prefix.
func readWordPieceDecoder(raw json.RawMessage, _ int) (decoder, error) {
	c := struct {
		Type    string `json:"type"`
		Prefix  string `json:"prefix"`
		Cleanup bool   `json:"cleanup"`
	}{}
	err := setup("decoder", "WordPiece", raw, &c)
	return growing{mapTokens(func() func(string) string {
		first := true
		return func(token string) string {
			if !first {
				if rest, ok := strings.CutPrefix(token, c.Prefix); ok {
					token = rest
				} else {
					token = " " + token
				}
			}
			first = false
			if c.Cleanup {
				token = cleanUp(token)
			}
			return token
		}
	}), 2}, err
}

// readBPEDecoder reads the decoder BPEDecoder: the suffix that ends a word is a space, except in the last token.
func readBPEDecoder(raw json.RawMessage, _ int) (decoder, error) {
	var c struct {
		Type   string `json:"type"`
		Suffix string `json:"suffix"`
	}
	err := setup("decoder", "BPEDecoder", raw, &c)
	return growing{decoderFunc(func(next sink) sink {
		var held string
		holds := false
		return &wholeTokens{
			token: func(token string) {
				if holds {
					next.write(strings.ReplaceAll(held, c.Suffix, " "), true)
				}
				held, holds = token, true
			},
			end: func() {
				if holds {
					next.write(strings.ReplaceAll(held, c.Suffix, ""), true)
				}
				next.close()
			},
		}
	}), 3}, err // an empty suffix is found before, between and after all characters
}

// readCTC reads the decoder CTC: of a run of equal tokens one is left, and padding goes.
func readCTC(raw json.RawMessage, _ int) (decoder, error) {
	var c struct {
		Type      string `json:"type"`
		Pad       string `json:"pad_token"`
		Delimiter string `json:"word_delimiter_token"`
		Cleanup   bool   `json:"cleanup"`
	}
	err := setup("decoder", "CTC", raw, &c)
	return growing{decoderFunc(func(next sink) sink {
		var before string
		first := true
		return &wholeTokens{
			token: func(token string) {
				if !first && token == before {
					return
				}
				before, first = token, false
				token = strings.ReplaceAll(token, c.Pad, "")
				if c.Cleanup {
					token = strings.ReplaceAll(cleanUp(token), c.Delimiter, " ")
				}
				if token != "" {
					next.write(token, true)
				}
			},
			end: next.close,
		}
	}), 3}, err // so is an empty delimiter
}
