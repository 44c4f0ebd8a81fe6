// Package engine reads a tokenizer.mtok and encodes and decodes with it exactly as the LLM engine of MNN does on a device.
// The engines 3.5.0 to 3.6.1 return the same ids for every file that they read; docs/internals/engine-tokenizer.md lists how they
// differ from the library `tokenizers`.
//
// [Open] reads the bytes of such a file, ours or another program's. tensor.ErrUnsupported names files with which the engine
// never ends or has undefined results, tensor.ErrCorrupt files that it would misread. No input panics; memory for a file is
// proportional to its size, time for a text to its length.
package engine
