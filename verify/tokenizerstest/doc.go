// Package tokenizerstest holds runtime/tokenizer to the library tokenizers, string by string, on the corpus of
// runtime/tokenizer/parity and the tokenizers of three dozen models; and what it emulates of the engine to the engine.
// The space between these is held to both by tokenizers and texts made at random, always the same from one seed: -random and
// -random-engines say how many, -seed where to begin.
//
// "make tokenizers" downloads the tokenizers and installs the library.
//
// LLMEXPORT_TOKENIZERS names another folder with the tokenizers, as NAME/tokenizer.json or NAME/models/tokenizer.json;
// LLMEXPORT_TOKENIZERS_PYTHON another Python that has the library. Engines are those in .venv/mnn-<release>; they need a
// package to load, by default that of "make demo", or the folder that LLMEXPORT_PACKAGE names.
package tokenizerstest
