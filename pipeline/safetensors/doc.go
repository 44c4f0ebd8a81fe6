// Package safetensors reads the weights of a checkpoint: the header of one file, and the shards of a
// directory as one [tensor.Source]. Start with [OpenDir]; use [ReadHeader], or [HeaderSize] and
// [ParseHeader], for a single file or for the first bytes of a remote one.
//
//	0        8                8+n                            end of file
//	+--------+----------------+------------------------------+
//	| n: u64 | JSON, n bytes  | tensor bytes, no gaps        |
//	+--------+----------------+------------------------------+
//
//	{"__metadata__": {"format": "pt"},
//	 "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
//
// Offsets count from byte 8+n. Everything is little endian and row-major. The parser is strict where
// the format leaves room for two readings: a key that comes twice, an unknown key, a hole, an overlap,
// or bytes after the last tensor are errors that wrap [tensor.ErrCorrupt]. Element types that
// [tensor.ParseDType] does not know are errors that wrap [tensor.ErrUnsupported].
//
// This package's own parser decides, because it also reads FP8 files, remote headers and duplicate
// names. OpenDir lets github.com/nlpodyssey/safetensors read each plain shard's header a second time,
// over a memory map, and refuses a shard on which the two disagree. Tensor bytes come through
// positioned reads and not through the map: a file that shrinks under a map kills the process.
package safetensors
