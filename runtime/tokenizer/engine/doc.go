// Package engine reads a tokenizer.mtok and encodes and decodes as the LLM engine of MNN does with it, peculiarities included, so that
// a package can be judged by what a device will do with it. The engines 3.5.0 to 3.6.1 give the same ids for every file that they
// read; docs/engine-tokenizer.md lists what they do otherwise than the library `tokenizers`.
//
// [Open] reads the bytes of such a file, ours or another program's. tensor.ErrUnsupported names what the engine reads but does with it
// is undefined, endless or unknown here, tensor.ErrCorrupt what it would misread or trip over. No input panics; the memory for a file
// is in proportion to its size, and the time for a text to its length.
package engine
