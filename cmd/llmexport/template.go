package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func (t *tool) templateCommand() *cli.Command {
	return &cli.Command{
		Name:      "template",
		Usage:     "render a conversation with a chat template",
		ArgsUsage: "PATH [CONVERSATION]",
		Description: "PATH is a checkpoint, a package, or a template file. CONVERSATION is a JSON file: a list of messages, or an\n" +
			"object with messages, tools, context and add_generation_prompt; or the name of a built-in one, by default one-turn.\n" +
			"The template is rendered as transformers does, or with --engine, as the MNN engine does.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "engine", Usage: "render as the MNN engine does"},
			&cli.StringFlag{Name: "name", Usage: "`NAME` of a template of the checkpoint, such as tool_use"},
			&cli.StringFlag{Name: "tools", Usage: "JSON `FILE` with a list of tools to offer"},
			&cli.StringFlag{Name: "thinking", Usage: "switch thinking `on` or off"},
			&cli.StringSliceFlag{Name: "set", Usage: "set a variable of the template, `KEY=VALUE`; VALUE may be JSON"},
			&cli.StringFlag{Name: "color", Value: "auto", Usage: "highlight special tokens: `WHEN` is auto, always or never"},
			jsonFlag(),
		},
		CustomHelpTemplate: help(
			"llmexport template ./Qwen3-0.6B",
			"llmexport template dist/qwen3-0.6b-int4 chat.json --engine --thinking off",
			"llmexport template ./Qwen3-0.6B tool-calls",
		),
		Action: t.template,
	}
}

// chatSource is the source of a prompt.
type chatSource struct {
	template, bos, eos string
	prefix             string   // added by the engine before every prompt
	special            []string // texts of special tokens
}

func (t *tool) template(c *cli.Context) error {
	names := []string{"PATH", "CONVERSATION"}
	if c.NArg() == 1 {
		names = names[:1]
	}
	args, err := arguments(c, names...)
	if err != nil {
		return err
	}
	color, err := t.colored(c.String("color"))
	if err != nil {
		return err
	}
	conversation, err := chosenConversation(c, args[1:])
	if err != nil {
		return err
	}
	src, err := openChat(args[0], c.String("name"))
	switch {
	case err != nil && isCheckpoint(args[0]):
		return err
	case err != nil:
		return explained(c.Context, args[0], err)
	}
	text, err := src.render(c.Context, conversation, c.Bool("engine"))
	if err != nil {
		return explained(c.Context, args[0], err)
	}
	marks := findTokens(text, src.special)
	if c.Bool("json") {
		return t.printJSON(struct {
			Text    string    `json:"text"`
			Special []tokenAt `json:"special"`
		}{text, marks})
	}
	out := t.stdout
	if color {
		out, text = t.screen, mark(text, marks)
	}
	_, err = fmt.Fprint(out, strings.TrimSuffix(text, "\n")+"\n")
	return err
}

// colored reports whether to use colours.
func (t *tool) colored(when string) (bool, error) {
	switch when {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return isTerminal(t.screen) && os.Getenv("NO_COLOR") == "", nil
	}
	return false, exit.Usagef("--color must be auto, always or never, not %q", when)
}

// chosenConversation reads a conversation from a file, or takes a built-in one, and applies the flags.
func chosenConversation(c *cli.Context, args []string) (conversations.Conversation, error) {
	name := "one-turn"
	if len(args) > 0 {
		name = args[0]
	}
	all := conversations.All()
	var chosen conversations.Conversation
	if i := slices.IndexFunc(all, func(x conversations.Conversation) bool { return x.Name == name }); i >= 0 {
		chosen = all[i]
	} else {
		b, err := os.ReadFile(name)
		if err != nil {
			var known []string
			for _, x := range all {
				known = append(known, x.Name)
			}
			return chosen, hint(err, "built-in conversations are "+strings.Join(known, ", "))
		}
		if chosen, err = conversations.Parse(filepath.Base(name), b); err != nil {
			return chosen, err
		}
	}
	chosen.Context = maps.Clone(chosen.Context)
	if chosen.Context == nil {
		chosen.Context = map[string]any{}
	}
	switch on := c.String("thinking"); on {
	case "":
	case "on", "off":
		maps.Copy(chosen.Context, chat.Thinking(on == "on"))
	default:
		return chosen, exit.Usagef("--thinking must be on or off, not %q", on)
	}
	for _, s := range c.StringSlice("set") {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return chosen, exit.Usagef("--set needs KEY=VALUE, not %q", s)
		}
		chosen.Context[key] = value
		if v, err := template.DecodeJSON([]byte(value)); err == nil {
			chosen.Context[key] = v
		}
	}
	if file := c.String("tools"); file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return chosen, err
		}
		v, err := template.DecodeJSON(b)
		if err != nil {
			return chosen, fmt.Errorf("%s: %w", file, err)
		}
		tools, ok := v.([]any)
		if !ok {
			return chosen, fmt.Errorf("%s: not a list of tools: %w", file, tensor.ErrCorrupt)
		}
		chosen.Tools = tools
	}
	return chosen, nil
}

// openChat reads the template of a file, a package or a checkpoint.
func openChat(path, name string) (*chatSource, error) {
	if filepath.Ext(path) == ".jinja" {
		b, err := os.ReadFile(path)
		return &chatSource{template: string(b)}, err
	}
	if _, err := os.Stat(filepath.Join(path, assemble.LLMConfigFile)); err == nil {
		if name != "" {
			return nil, exit.Usagef("--name is for checkpoints; a package has one template")
		}
		return openPackagedChat(path)
	}
	facts, tok, err := source.ReadFacts(path)
	if err != nil {
		return nil, err
	}
	src := &chatSource{template: facts.ChatTemplate, bos: facts.BOS, eos: facts.EOS}
	if name != "" {
		t, ok := facts.Templates[name]
		if !ok {
			return nil, hint(exit.Usagef("the checkpoint has no chat template called %q", name), "it has "+strings.Join(slices.Sorted(maps.Keys(facts.Templates)), ", "))
		}
		src.template = t
	}
	for _, a := range tok.AddedTokens() {
		src.special = append(src.special, a.Content)
	}
	if src.template == "" {
		return nil, fmt.Errorf("%s has no chat template: %w", path, tensor.ErrUnsupported)
	}
	return src, nil
}

func openPackagedChat(path string) (*chatSource, error) {
	p, err := runtime.Open(path)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	t, err := chat.Read(p)
	if err != nil {
		return nil, err
	}
	src := &chatSource{template: t.Source, eos: t.EOS, prefix: t.Prefix}
	for _, id := range p.Tokenizer.Special() {
		src.special = append(src.special, p.Tokenizer.Decode([]int32{id}))
	}
	return src, nil
}

func (s *chatSource) render(ctx context.Context, c conversations.Conversation, byEngine bool) (string, error) {
	if byEngine {
		parsed, err := engine.Parse(s.template)
		if err != nil {
			return "", err
		}
		text, err := c.Render(parsed.Renderer(ctx, s.bos, s.eos, template.Limits{}))
		return s.prefix + text, err
	}
	parsed, err := template.Parse("chat_template", s.template)
	if err != nil {
		return "", err
	}
	return c.Render(conversations.With(ctx, parsed, s.bos, s.eos, template.Limits{}))
}

// tokenAt is a special token at a byte offset of a text.
type tokenAt struct {
	Token string `json:"token"`
	At    int    `json:"at"`
}

// findTokens returns the special tokens in text from left to right, the longest one at every position.
func findTokens(text string, special []string) []tokenAt {
	found := []tokenAt{}
	for at := 0; at < len(text); {
		longest := ""
		for _, s := range special {
			if len(s) > len(longest) && strings.HasPrefix(text[at:], s) {
				longest = s
			}
		}
		if longest == "" {
			at++
			continue
		}
		found = append(found, tokenAt{longest, at})
		at += len(longest)
	}
	return found
}

// mark prints text with the special tokens in cyan, and escapes everything else.
func mark(text string, marks []tokenAt) string {
	var b strings.Builder
	at := 0
	for _, m := range marks {
		b.WriteString(sheet.Escape(text[at:m.At]) + "\x1b[36m" + sheet.Escape(m.Token) + "\x1b[0m")
		at = m.At + len(m.Token)
	}
	return b.String() + sheet.Escape(text[at:])
}
