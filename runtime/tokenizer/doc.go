// Package tokenizer turns text into token ids and back, exactly as the library `tokenizers` does, or refuses.
//
// # The source
//
// [Load] and [LoadWith] read the tokenizer.json of a Hugging Face checkpoint. Their [Tokenizer] gives the ids and the texts
// that the library `tokenizers` 0.23 gives for the same file. A tokenizer.json is made of components, and the package knows
// these:
//
//	normalizers      NFC NFD NFKC NFKD Nmt Lowercase StripAccents Strip Prepend Replace Precompiled ByteLevel BertNormalizer
//	                 Sequence
//	pre-tokenizers   ByteLevel Split Whitespace WhitespaceSplit Punctuation Digits CharDelimiterSplit Metaspace
//	                 UnicodeScripts BertPreTokenizer FixedLength Sequence
//	models           BPE Unigram WordPiece WordLevel
//	post-processors  TemplateProcessing ByteLevel BertProcessing RobertaProcessing Sequence
//	decoders         ByteLevel ByteFallback Fuse Metaspace Replace Strip WordPiece BPEDecoder CTC Sequence
//
// A checkpoint is more than that file: package repository reads the files beside it, and other vocabularies where there is none.
//
// # The engine
//
// [Tokenizer.MTOK] writes a tokenizer.mtok, the binary form that the LLM engine of MNN reads since 3.5.0. The engine is not
// able to express everything that a tokenizer.json says: what would give other ids throughout is refused, and the rest is
// returned as losses. Package engine reads such a file and gives the engine's ids.
//
// # What is refused
//
// tensor.ErrUnsupported names what is sound but not understood: components and settings that are not listed, ids that the
// library would number otherwise, regular expressions with back references or calls, and, for [Tokenizer.MTOK], what the engine does
// differently everywhere. tensor.ErrCorrupt names what contradicts itself. No input panics; the memory for a file is in proportion to its
// size, and the time for a text to its length.
package tokenizer
