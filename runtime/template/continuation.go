package template

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/template/syntax"
)

// continueTag marks the end of an unfinished answer. transformers: utils/chat_template_utils.py.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// Continue renders a conversation whose last message is an answer that the model is to continue, so that the text
// ends where that answer does, as apply_chat_template with continue_final_message. Messages are those that [Messages]
// returns; render is called once, with a changed last message, and without a generation prompt.
func Continue(messages []*Object, render func([]*Object) (string, error)) (string, error) {
	if len(messages) == 0 {
		return "", errors.New("there is no message to continue")
	}
	last := messages[len(messages)-1].clone()
	content, _ := last.Get("content")
	final, tagged, err := tag(content)
	if err != nil {
		return "", err
	}
	last.Set("content", tagged)
	messages = append(slices.Clone(messages[:len(messages)-1]), last)
	out, err := render(messages)
	if err != nil {
		return "", err
	}
	mark := strings.TrimSuffix(continueTag, " ")
	at := strings.LastIndex(out, mark)
	if at < 0 || !strings.Contains(out, strings.TrimFunc(final, syntax.IsSpace)) {
		return "", errors.New("the template leaves out the message to continue, or parts of it")
	}
	if strings.HasPrefix(out[at:], continueTag) {
		return out[:at], nil
	}
	return strings.TrimRightFunc(out[:at], syntax.IsSpace), nil // the template trims the text
}

// tag appends the mark to a content, or to the last of its texts, and returns that text.
func tag(content any) (final string, tagged any, err error) {
	switch c := content.(type) {
	case string:
		return c, c + continueTag, nil
	case []any:
		for i, part := range slices.Backward(c) {
			o, ok := part.(*Object)
			if !ok {
				continue
			}
			if text, ok := o.Get("text"); ok {
				s, ok := text.(string)
				if !ok {
					break
				}
				o = o.clone()
				o.Set("text", s+continueTag)
				c = slices.Clone(c)
				c[i] = o
				return s, c, nil
			}
		}
	}
	return "", nil, fmt.Errorf("the last message has no text to continue")
}
