// Package tokenizer turns text into token ids and back, exactly as two other programs do.
//
// [Load] reads the tokenizer.json of a Hugging Face checkpoint. Its [Tokenizer] gives the ids that the
// Python library `tokenizers` gives for the same file. Only byte-level BPE is understood, the kind of
// Qwen, Llama 3, SmolLM2 and GPT-2; a file with any other component is refused with
// tensor.ErrUnsupported and the component's name, never read approximately.
//
// [Tokenizer.MTOK] writes the same vocabulary as tokenizer.mtok, the binary form that the LLM engine
// of MNN reads since 3.5.0. The engine is not able to express everything that a tokenizer.json says:
// what would give other ids throughout is refused, and [Tokenizer.Losses] lists the rest.
//
// [OpenMTOK] reads such a file, ours or another program's. Its [Engine] encodes and decodes as the
// engines 3.5.0 to 3.6.1 do, peculiarities included, so that a package can be judged by what a device
// will do with it.
//
// # The file tokenizer.mtok
//
// Three text lines, each ended by one line feed, then binary to the end. Integers are little endian; str
// is a uint16 length and that many bytes.
//
//	"430 4"
//	counts of special, stop and prefix ids
//	these ids, separated by spaces
//	normalizer      tag, payload                  0 none, 3 replace, 4 sequence, 6 table, 8 strip
//	pre-tokenizer   tag, payload                  0 none, 1 byte level, 2 digits, 4 split, 6 sequence
//	model           u8 0 (BPE), u32 vocabulary, u8 byte fallback, u8 byte level, u32 merges
//	                vocabulary x (str token, u32 id), sorted by token bytes
//	                merges x (u32 left, u32 right, u32 rank), sorted by left, then right
//	decoder         tag, payload                  0 byte level, 4 fuse, 5 replace, 7 sequence
//	added tokens    u32 n, n x (u32 id, u8 special, u8 lstrip, u8 rstrip, str text)
//	chat template   u32 length, bytes             this and all that follows may be missing
//	eos text        str
//	flags           u8                            bit 0: clean up spaces when a list is decoded
//	bos text        str
//	post-processor  u16 n, n x (u8 0 | u8 1, u32 id)
package tokenizer
