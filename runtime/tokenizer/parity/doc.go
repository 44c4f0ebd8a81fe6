// Package parity compares two tokenizers: [Corpus] is some twenty thousand strings, [Compare] counts those for which two
// encoders return different ids.
//
// The corpus has two halves. The plain half is text of people and programs: sentences in 112 languages, code,
// Markdown, tables, chat, numbers, addresses, emoji, all of it in NFC. The hard half is everything else that may reach
// a tokenizer: every script and general category of Unicode, decomposed and misordered marks, white space, control and
// format characters, bytes that are not UTF-8, special tokens inside text, very long words, and splices of all these.
//
// The strings are in corpus.jsonl.gz, for programs in any language to read: lines of JSON, compressed by gzip, each
// with the keys "class", "hard" and either "text" or, for what is not UTF-8, "base64".
package parity
