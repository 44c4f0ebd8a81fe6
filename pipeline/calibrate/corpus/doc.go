// Package corpus turns the files that a recipe names as calibration data into windows of token ids.
//
// Build reads them; a Corpus is saved with Save and read with Load. The same files, tokenizer and options give the
// same windows on every machine, and Corpus.Digest names them.
//
// Every file is a domain. The windows are distributed by weight, and a domain's windows are spread evenly over its text.
// Windows have no padding: short documents are joined until a window is full.
//
//   - A document begins a window, or joins one that begins with a shorter document.
//   - A document longer than a window continues in the next one; its end is dropped if it does not fill a window.
//   - A conversation is rendered by the chat template and never continues in another window.
//   - A domain that is too small for this uses all of its tokens in order, and its windows begin anywhere; if that is not
//     enough either, the other domains fill the rest, with a warning.
//
// Files are read as streams, first to count their documents, then to take the chosen ones. A file much larger than its share
// is sampled: passages are taken evenly over its length, about eight times as much as will be used.
//
// Content that is not UTF-8, is malformed, or differs from the given SHA-256 is a tensor.ErrCorrupt. Rare codecs and encodings
// of Parquet are a tensor.ErrUnsupported.
package corpus
