// Package repository reads the tokenizer of a Hugging Face repository from all of its files, as AutoTokenizer of transformers 5.23
// does.
//
// [ReadConfig] reads the files other than the vocabulary, and [Config.JSON] adds the tokens that they name to a
// tokenizer.json. Without one, [Config.SentencePiece], [Config.Tiktoken], [Config.Tekken] and [Config.Merges] read other
// vocabularies; the [Definition] that they return is a tokenizer.json in memory. [DefineSentencePiece] reads a SentencePiece
// model as its own library does, regardless of other files.
//
// tensor.ErrUnsupported names valid but unsupported input, such as unused pieces of SentencePiece and tokenizer classes that
// are Python code of a repository, tensor.ErrCorrupt contradictions. No input panics; memory for a file is proportional to
// its size.
package repository
