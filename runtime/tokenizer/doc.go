// Package tokenizer turns text into token ids and back, exactly as two other programs do, or refuses.
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
// A checkpoint is more than that file: [ReadConfig] reads the files beside it, and [Config.JSON] adds the tokens that they
// name. Where there is no tokenizer.json, [Config.SentencePiece], [Config.Tiktoken], [Config.Tekken] and [Config.Merges] read
// other vocabularies as AutoTokenizer of transformers 5.23 does; the [Definition] that they return is a tokenizer.json in
// memory. [DefineSentencePiece] reads a SentencePiece model as its own library does, whatever stands beside it.
//
// # The engine
//
// [Tokenizer.MTOK] writes a tokenizer.mtok, the binary form that the LLM engine of MNN reads since 3.5.0. The engine is not
// able to express everything that a tokenizer.json says: what would give other ids throughout is refused, and the rest is
// returned as losses.
//
// [OpenMTOK] reads such a file, ours or another program's. Its [Engine] encodes and decodes as the engines 3.5.0 to 3.6.1 do,
// peculiarities included, so that a package can be judged by what a device will do with it.
//
// # What is refused
//
// tensor.ErrUnsupported names what is sound but not understood: components and settings that are not listed, ids that the
// library would number otherwise, regular expressions with back references or calls, pieces of SentencePiece that are unused,
// classes of tokenizers that are Python code of a repository, and, for [Tokenizer.MTOK], what the engine does differently
// everywhere. tensor.ErrCorrupt names what contradicts itself. No input panics; the memory for a file is in proportion to its
// size, and the time for a text to its length.
//
// # The file tokenizer.mtok
//
// Three text lines, each ended by one line feed, then binary to the end. Integers are little endian; str is a u16 length and
// that many bytes; bool is a byte, 0 or 1. A node is a tag, one byte, and a payload; the nodes of a sequence may be sequences.
//
//	"430 4"
//	counts of special, stop and prefix ids, separated by spaces
//	these ids, separated by spaces
//
//	normalizer      0  none
//	                1  without effect
//	                2  prepend       str content
//	                3  replace       str pattern, str content
//	                4  sequence      u32 n, n x node
//	                5  Bert          bool clean, bool Chinese, bool accents (without effect), bool lower case
//	                6  table         u32 n, n x (u32 code point, str text), sorted
//	                7  Bert          as 5, and with accents a table as 6
//	                8  strip         bool left, bool right (without effect); since 3.6.0
//	pre-tokenizer   0  none
//	                1  byte level    bool use the pattern of GPT-2
//	                2  digits        bool one by one
//	                3  metaspace     str replacement, bool put one before the text
//	                4  split         str pattern, bool invert, u8 behaviour: 0 isolated, 1 removed, 2 merged with previous
//	                5  Bert
//	                6  sequence      u32 n, n x node
//	model           u8 type, u32 vocabulary, then
//	                0  BPE           bool byte fallback (without effect), bool byte level, u32 merges,
//	                                 vocabulary x (str token, u32 id), merges x (u32 left, u32 right, u32 rank)
//	                1  WordPiece     str unknown token, str prefix within words, u32 longest word in bytes,
//	                                 vocabulary x (str token, u32 id)
//	                2  Unigram       u32 unknown id, bool byte fallback, vocabulary x (str token, u32 id, f64 score)
//	                tokens are sorted by bytes, merges by left, then right
//	decoder         0  byte level
//	                1  byte fallback
//	                2  metaspace     str replacement, bool strip the first
//	                3  WordPiece     str prefix, bool clean up
//	                4  fuse
//	                5  replace       str pattern, str content
//	                6  strip         str content, u32 from the start, u32 from the end
//	                7  sequence      u32 n, n x node
//	added tokens    u32 n, n x (u32 id, bool special, bool lstrip, bool rstrip, str text)
//
//	chat template   u32 length, bytes             this and each part that follows may be missing
//	eos text        str
//	flags           u8                            bit 0: clean up spaces when a list is decoded
//	bos text        str
//	post-processor  u16 n, n x (u8 0 | u8 1, u32 id)
package tokenizer
