// Package corpus turns the files that a recipe names as calibration data into windows of token ids.
//
// Build reads them; a Corpus is saved with Save and read with Load. The same files, tokenizer and options give the
// same windows on every machine, and Corpus.Digest names them.
//
// Every file is a domain. The windows are shared out by weight, and a domain's windows are spread evenly over its
// text. No window holds padding: short documents are joined until it is full.
//
//   - A document begins a window, or joins one that begins with a shorter document.
//   - A document longer than a window continues in the next one; what is left of it at its end and fills no window
//     is left out.
//   - A conversation is rendered by the chat template and never continues in another window.
//   - A domain that is too small for this uses every token that it has, in order, windows then beginning anywhere; if
//     that is too little as well, the other domains stand in and a warning says so.
//
// Files are read as streams, first to count their documents, then to take the chosen ones. A file much larger than
// its share is sampled: passages are taken evenly over its length, about eight times as much as will be used.
//
// Refused with tensor.ErrCorrupt: content that is not UTF-8, not what its format says, or not of the given SHA-256.
// Refused with tensor.ErrUnsupported: rare codecs and encodings of Parquet.
package corpus
