// Package mtok reads and writes the file tokenizer.mtok, from which the LLM engine of MNN takes its tokenizer since 3.5.0. [Parse]
// and [File.Marshal] are exact: a file is written as the bytes that were read, and files that the engine would misread are
// rejected.
//
// # The file
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
package mtok
