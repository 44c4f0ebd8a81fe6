//go:build tokenizers

package tokenizerstest

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// components are components with all their settings, by their places.
const components = `{
"normalizer": [
	{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},
	{"type":"Strip","strip_left":true,"strip_right":true},
	{"type":"Replace","pattern":{"String":"a"},"content":"b"}, {"type":"Prepend","prepend":"a"}, {"type":"Sequence","normalizers":[]}],
"pre_tokenizer": [
	{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}, {"type":"CharDelimiterSplit","delimiter":"a"},
	{"type":"Metaspace","replacement":"a","prepend_scheme":"never","split":true}, {"type":"Split","pattern":{"String":"a"},"behavior":"Removed","invert":false},
	{"type":"Punctuation","behavior":"Removed"}, {"type":"Digits","individual_digits":true}, {"type":"FixedLength","length":3},
	{"type":"Sequence","pretokenizers":[]}],
"model": [
	{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,
	"byte_fallback":false,"ignore_merges":false,"vocab":{"a":0},"merges":[]},
	{"type":"Unigram","unk_id":0,"vocab":[["a",0]],"byte_fallback":false}, {"type":"WordLevel","unk_token":"a","vocab":{"a":0}},
	{"type":"WordPiece","unk_token":"a","continuing_subword_prefix":"#","max_input_chars_per_word":5,"vocab":{"a":0}}],
"post_processor": [
	{"type":"BertProcessing","sep":["a",0],"cls":["a",0]}, {"type":"RobertaProcessing","sep":["a",0],"cls":["a",0],"trim_offsets":true,"add_prefix_space":true},
	{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}, {"type":"Sequence","processors":[]},
	{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}],
"decoder": [
	{"type":"BPEDecoder","suffix":"a"}, {"type":"WordPiece","prefix":"a","cleanup":true}, {"type":"CTC","pad_token":"a","word_delimiter_token":"b","cleanup":true},
	{"type":"Strip","content":"a","start":1,"stop":1}, {"type":"Replace","pattern":{"String":"a"},"content":"b"},
	{"type":"Metaspace","replacement":"a","prepend_scheme":"never","split":true},
	{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}, {"type":"Sequence","decoders":[]}],
"truncation": [{"direction":"Right","max_length":5,"strategy":"LongestFirst","stride":0}],
"padding": [{"strategy":"BatchLongest","direction":"Left","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"a"}]}`

// TestSettings leaves out every setting of every component, or makes it null: we refuse what the library refuses.
func TestSettings(t *testing.T) {
	var all map[string][]object
	if err := json.Unmarshal([]byte(components), &all); err != nil {
		t.Fatal(err)
	}
	w := newLibraryWorker(t)
	defer w.stop()
	for _, place := range slices.Sorted(maps.Keys(all)) {
		for _, c := range all[place] {
			for _, key := range slices.Sorted(maps.Keys(c)) {
				missing, null := maps.Clone(c), maps.Clone(c)
				delete(missing, key)
				null[key] = nil
				for _, changed := range []object{missing, null} {
					f := object{"version": "1.0", "model": all["model"][0]}
					f[place] = changed
					file := marshal(f)
					var a answer
					if !w.ask(object{"file": file, "texts": []string{}, "ids": []string{}}, &a) {
						t.Fatalf("no answer to %s", file)
					}
					_, err := tokenizer.Load([]byte(file))
					if (err == nil) != (a.Error == "") && !(a.Error == "" && errors.Is(err, tensor.ErrUnsupported)) {
						t.Errorf("%s: library %q, ours %v", marshal(changed), a.Error, err)
					}
				}
			}
		}
	}
}
