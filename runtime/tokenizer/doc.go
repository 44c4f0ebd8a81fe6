// Package tokenizer turns text into token ids and back, exactly as the library `tokenizers` does, or refuses.
//
// # The source
//
// [Load] and [LoadWith] read the tokenizer.json of a Hugging Face checkpoint. Their [Tokenizer] returns the ids and texts of
// the library `tokenizers` 0.23 for the same file. A tokenizer.json is made of components; the package supports these:
//
//	normalizers      NFC NFD NFKC NFKD Nmt Lowercase StripAccents Strip Prepend Replace Precompiled ByteLevel BertNormalizer
//	                 Sequence
//	pre-tokenizers   ByteLevel Split Whitespace WhitespaceSplit Punctuation Digits CharDelimiterSplit Metaspace
//	                 UnicodeScripts BertPreTokenizer FixedLength Sequence
//	models           BPE Unigram WordPiece WordLevel
//	post-processors  TemplateProcessing ByteLevel BertProcessing RobertaProcessing Sequence
//	decoders         ByteLevel ByteFallback Fuse Metaspace Replace Strip WordPiece BPEDecoder CTC Sequence
//
// Package repository reads the other files of a checkpoint, and other vocabularies if it has no tokenizer.json.
//
// # The engine
//
// [Tokenizer.MTOK] writes a tokenizer.mtok, the binary form that the LLM engine of MNN reads since 3.5.0. It cannot express
// every tokenizer.json: a tokenizer that would get other ids throughout is rejected, and exceptions are returned as losses.
// Package engine reads such a file and returns the engine's ids.
//
// # Errors
//
// tensor.ErrUnsupported names valid but unsupported input: components and settings that are not listed, ids that the
// library would number differently, regular expressions with back references or calls, and, for [Tokenizer.MTOK], anything
// that the engine always does differently. tensor.ErrCorrupt names contradictions. No input panics; memory for a file is
// proportional to its size, time for a text to its length.
package tokenizer
