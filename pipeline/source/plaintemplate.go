package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/syntax"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// errNotPlain reports a template that does not put the same text around every message.
var errNotPlain = errors.New("no plain template renders even plain conversations as the source's does")

// simplifyTemplate makes a plain template of the texts that the source's template puts around the messages of each role.
func (f *Facts) simplifyTemplate(ctx context.Context, source *template.Template, prefix string) error {
	for _, trim := range []bool{false, true} {
		text, err := f.plainTemplate(ctx, source, prefix, trim)
		if err != nil {
			return fmt.Errorf("%w: %w: %w", errNotPlain, err, tensor.ErrUnsupported)
		}
		found, err := f.compareTemplate(ctx, text, prefix)
		if err != nil {
			return err
		}
		var dropped []string
		plain := true
		for _, d := range found.Different {
			dropped = append(dropped, d.Conversation)
			plain = plain && !slices.Contains(verify.PlainConversations, d.Conversation)
		}
		if plain {
			f.PackagedTemplate, f.Simplified = text, true
			f.Warnings = append(f.Warnings, "the recipe replaces the chat template by a plain one, without tools, thinking and other "+
				"features of the source's; rendered differently: "+strings.Join(dropped, ", "))
			return nil
		}
	}
	return fmt.Errorf("%w: %w", errNotPlain, tensor.ErrUnsupported)
}

// plainTemplate returns a template made of the source's output for conversations whose contents are marks.
func (f *Facts) plainTemplate(ctx context.Context, source *template.Template, prefix string, trim bool) (string, error) {
	const system, user, assistant, again = "\x01S\x01", "\x01U\x01", "\x01A\x01", "\x01V\x01"
	render := func(ask bool, messages ...template.Message) (string, error) {
		return template.Chat(ctx, source, messages, ask, map[string]any{"bos_token": f.BOS, "eos_token": f.EOS}, template.Limits{})
	}
	u, v := template.Message{Role: "user", Content: user}, template.Message{Role: "user", Content: again}
	a := template.Message{Role: "assistant", Content: assistant}
	one, err := render(false, u)
	if err != nil {
		return "", err
	}
	asked, err := render(true, u)
	if err != nil {
		return "", err
	}
	answered, err := render(false, u, a)
	if err != nil {
		return "", err
	}
	long, err := render(false, u, a, v)
	if err != nil {
		return "", err
	}
	begin, afterUser, ok1 := strings.Cut(one, user)
	prompt, ok2 := strings.CutPrefix(asked, one)
	_, rest, ok3 := strings.Cut(long, user)
	between, rest, ok4 := strings.Cut(rest, assistant)
	betweenTurns, _, ok5 := strings.Cut(rest, again)
	_, afterAssistant, ok6 := strings.Cut(answered, assistant)
	beforeAssistant, ok7 := strings.CutPrefix(between, afterUser)
	beforeUser, ok8 := strings.CutPrefix(betweenTurns, afterAssistant)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || !ok8 {
		return "", errors.New("it does not put the same text around every turn")
	}
	begin = strings.TrimPrefix(begin, prefix)
	content := "message.content"
	if trim {
		content = "message.content|trim"
	}
	q := syntax.Quote
	var b strings.Builder
	b.WriteString("{% for message in messages %}")
	between = begin
	withSystem, err := render(false, template.Message{Role: "system", Content: system}, u)
	clause := "if"
	if err == nil {
		before, rest, ok := strings.Cut(withSystem, system)
		after, _, ok2 := strings.Cut(rest, user)
		if !ok || !ok2 {
			return "", errors.New("it does not show the system prompt")
		}
		// The first turn may begin differently.
		first, ok := strings.CutSuffix(after, beforeUser)
		if !ok {
			first, beforeUser = "", after
		}
		fmt.Fprintf(&b, "{%% if message.role == 'system' %%}{{ %s ~ (%s) ~ %s }}", q(strings.TrimPrefix(before, prefix)), content, q(first))
		clause = "elif"
	}
	fmt.Fprintf(&b, "{%% %s message.role == 'user' %%}{{ (%s if loop.first else %s) ~ (%s) ~ %s }}", clause, q(between), q(beforeUser), content, q(afterUser))
	fmt.Fprintf(&b, "{%% elif message.role == 'assistant' %%}{{ %s ~ (%s) ~ %s }}", q(beforeAssistant), content, q(afterAssistant))
	fmt.Fprintf(&b, "{%% endif %%}{%% endfor %%}{%% if add_generation_prompt %%}{{ %s }}{%% endif %%}", q(prompt))
	return b.String(), nil
}
