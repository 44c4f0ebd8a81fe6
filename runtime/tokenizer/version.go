package tokenizer

import "golang.org/x/text/unicode/rangetable"

// Components of the library `tokenizers` use tables of several versions of Unicode. Younger code points are unassigned
// there, whatever Go's tables (Unicode 15) hold.
var (
	unicode8 = rangetable.Assigned("8.0.0") // BertNormalizer, and the punctuation of pre-tokenizers
	unicode9 = rangetable.Assigned("9.0.0") // NFC, NFD, NFKC, NFKD, StripAccents, UnicodeScripts
)
