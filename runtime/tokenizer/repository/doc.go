// Package repository reads the tokenizer of a Hugging Face repository from all of its files, as AutoTokenizer of transformers 5.23
// does.
//
// [ReadConfig] reads the files beside a vocabulary, and [Config.JSON] adds the tokens that they name to a tokenizer.json. Where there
// is none, [Config.SentencePiece], [Config.Tiktoken], [Config.Tekken] and [Config.Merges] read other vocabularies; the [Definition]
// that they return is a tokenizer.json in memory. [DefineSentencePiece] reads a SentencePiece model as its own library does, whatever
// stands beside it.
//
// tensor.ErrUnsupported names what is sound but not understood, such as pieces of SentencePiece that are unused and classes of
// tokenizers that are Python code of a repository, tensor.ErrCorrupt what contradicts itself. No input panics; the memory for a file
// is in proportion to its size.
package repository
