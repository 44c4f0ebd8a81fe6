package tokenizer

import "encoding/json"

// normalizer changes a text before it is cut into words. Texts are UTF-8.
type normalizer interface {
	normalize(s string) string
}

// normalizers are the types of the key "normalizer".
var normalizers components[normalizer]

func init() {
	normalizers = components[normalizer]{"normalizer", map[string]func(json.RawMessage, int) (normalizer, error){
		"NFC":      readNFC,
		"Sequence": readNormalizerSequence,
	}}
}

// normalizerSequence is the normalizer Sequence.
type normalizerSequence []normalizer

func readNormalizerSequence(raw json.RawMessage, depth int) (normalizer, error) {
	list, err := normalizers.sequence("normalizers", raw, depth)
	return normalizerSequence(list), err
}

func (l normalizerSequence) normalize(s string) string {
	for _, n := range l {
		s = n.normalize(s)
	}
	return s
}

// nfcNormalizer is the normalizer NFC.
type nfcNormalizer struct{}

func readNFC(raw json.RawMessage, _ int) (normalizer, error) {
	var c struct {
		Type string `json:"type"`
	}
	return nfcNormalizer{}, setup("normalizer", "NFC", raw, &c)
}

func (nfcNormalizer) normalize(s string) string { return nfc(s) }
