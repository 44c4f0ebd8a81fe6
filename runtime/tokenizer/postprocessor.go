package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// postProcessor is the ids that a post-processor puts around one text.
type postProcessor struct {
	prefix, suffix []int32
	// parts is set if the library has more than one text afterwards, which only ByteLevel keeps.
	parts bool
	// changes is false for one without effect on ids.
	changes bool
}

// postProcessors are the types of the key "post_processor". Their texts for tokens need not be those of the vocabulary: ids count.
var postProcessors components[postProcessor]

func init() {
	postProcessors = components[postProcessor]{"post-processor", map[string]func(json.RawMessage, int) (postProcessor, error){
		"BertProcessing":     readBertProcessing,
		"ByteLevel":          readByteLevelProcessor,
		"RobertaProcessing":  readRobertaProcessing,
		"Sequence":           readProcessorSequence,
		"TemplateProcessing": readTemplate,
	}}
}

// readPostProcessor fills the ids around a text.
func (t *Tokenizer) readPostProcessor(raw json.RawMessage) error {
	p, _, err := postProcessors.read(raw, maxNesting)
	if err != nil {
		return err
	}
	for _, id := range slices.Concat(p.prefix, p.suffix) {
		if _, ok := t.Token(id); !ok {
			return unsupported("post-processor", fmt.Sprintf("with id %d, which is not a token", id)) // the library puts it nevertheless
		}
	}
	t.prefix, t.suffix = p.prefix, p.suffix
	return nil
}

// readProcessorSequence reads the post-processor Sequence: each puts its ids around those of the one before.
func readProcessorSequence(raw json.RawMessage, depth int) (all postProcessor, err error) {
	list, err := postProcessors.sequence("processors", raw, depth)
	for _, p := range list {
		if !p.changes {
			continue
		}
		if all.parts {
			return postProcessor{}, unsupported("post-processor", `after "TemplateProcessing"`)
		}
		all = postProcessor{append(slices.Clip(p.prefix), all.prefix...), append(slices.Clip(all.suffix), p.suffix...), p.parts, true}
	}
	return all, err
}

// readByteLevelProcessor reads the post-processor ByteLevel. It only changes offsets, which are not computed here.
func readByteLevelProcessor(raw json.RawMessage, _ int) (p postProcessor, err error) {
	_, err = byteLevelSettings("post-processor", raw)
	return p, err
}
