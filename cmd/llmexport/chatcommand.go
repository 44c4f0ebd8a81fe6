package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/sound"
)

// chatCommand is a line of a conversation that begins with /.
type chatCommand struct {
	name, argument, does string
	run                  func(b *chatter, ctx context.Context, interrupts <-chan os.Signal, argument string) error
}

// chatCommands lists them in the order of /help.
func chatCommands() []chatCommand {
	return []chatCommand{
		{"/help", "", "list the commands", (*chatter).help},
		{"/system", "[TEXT]", "set the system message; without TEXT, remove it", (*chatter).system},
		{"/think", "on|off", "switch thinking on or off, if the template can", (*chatter).think},
		{"/set", "NAME VALUE", "set temperature, top-k, top-p, seed or tokens", (*chatter).set},
		{"/image", "FILE", "begin the next message with a picture; <img>FILE</img> puts one within a message", (*chatter).image},
		{"/audio", "FILE", "begin the next message with a clip; <audio>FILE</audio> puts one within a message", (*chatter).audio},
		{"/retry", "", "answer the last message again", (*chatter).retry},
		{"/reset", "", "begin a new conversation with the same system message", (*chatter).reset},
		{"/stats", "", "print the costs of the last answer", (*chatter).showStats},
		{"/save", "FILE", "write the conversation to FILE, as JSON", (*chatter).save},
		{"/load", "FILE", "continue the conversation in FILE", (*chatter).load},
		{"/exit", "", "leave; so do /quit and Ctrl-D", (*chatter).leave},
		{"/quit", "", "", (*chatter).leave},
	}
}

// commandNames lists the commands for completion.
func commandNames() (names []string) {
	for _, c := range chatCommands() {
		names = append(names, c.name)
	}
	return names
}

// command carries out a line that begins with /.
func (b *chatter) command(ctx context.Context, interrupts <-chan os.Signal, text string) error {
	name, argument, _ := strings.Cut(text, " ")
	argument = strings.TrimSpace(argument)
	for _, c := range chatCommands() {
		switch {
		case c.name != name:
		case c.argument == "" && argument != "":
			return exit.Usagef("%s takes no argument", name)
		case argument == "" && c.argument != "" && c.argument[0] != '[':
			return exit.Usagef("%s needs %s", name, c.argument)
		default:
			return c.run(b, ctx, interrupts, argument)
		}
	}
	return hint(exit.Usagef("unknown command %s", name), "/help lists the commands; // begins a message with /")
}

func (b *chatter) help(context.Context, <-chan os.Signal, string) error {
	for _, c := range chatCommands() {
		if c.does != "" {
			b.note("%-18s  %s", strings.TrimSpace(c.name+" "+c.argument), c.does)
		}
	}
	b.note("%-18s  %s", quotes, "begins and ends a message of several lines; so does \\ at the end of a line")
	b.note("%-18s  %s", "Ctrl-C", "stop an answer; twice, leave")
	return nil
}

func (b *chatter) system(_ context.Context, _ <-chan os.Signal, text string) error {
	b.dialogue.System = text
	if text == "" {
		b.note("No system message.")
	}
	return nil
}

func (b *chatter) think(ctx context.Context, _ <-chan os.Signal, on string) error {
	switch {
	case on != "on" && on != "off":
		return exit.Usagef("/think needs on or off, not %q", on)
	case !b.template.KnowsThinking(ctx):
		return exit.Usagef("the chat template of this package cannot switch thinking on or off")
	}
	b.dialogue.Variables = chat.Thinking(on == "on")
	return nil
}

// image keeps a picture for the next message. Its file is read twice, so that a wrong name is told now.
func (b *chatter) image(_ context.Context, _ <-chan os.Signal, name string) error {
	if r := b.dialogue.Reader; r == nil || r.Tower == nil {
		return exit.Usagef("this package reads no pictures")
	}
	name = unquoted(name)
	im, err := picture.Open(name)
	if err != nil {
		return &chat.ShownError{Err: err}
	}
	b.shown += "<img>" + name + "</img>"
	b.note("%s, %d x %d pixels: it begins the next message.", filepath.Base(name), im.Width, im.Height)
	return nil
}

// audio keeps a clip for the next message, as image does a picture.
func (b *chatter) audio(_ context.Context, _ <-chan os.Signal, name string) error {
	if r := b.dialogue.Reader; r == nil || r.Ear == nil {
		return exit.Usagef("this package reads no sound")
	}
	name = unquoted(name)
	wave, err := sound.Open(name)
	if err != nil {
		return &chat.ShownError{Err: err}
	}
	b.shown += "<audio>" + name + "</audio>"
	b.note("%s, %.2f s: it begins the next message.", filepath.Base(name), float64(len(wave))/sound.Rate)
	return nil
}

// unquoted is a name without the quotes in which terminals paste files that are dropped on them.
func unquoted(name string) string {
	if n := len(name); n > 2 && (name[0] == '\'' || name[0] == '"') && name[n-1] == name[0] {
		return name[1 : n-1]
	}
	return name
}

func (b *chatter) retry(ctx context.Context, interrupts <-chan os.Signal, _ string) error {
	message, ok := b.dialogue.Undo()
	if !ok {
		return exit.Usagef("there is no earlier message, so nothing can be answered again")
	}
	return b.ask(ctx, interrupts, message)
}

func (b *chatter) reset(context.Context, <-chan os.Signal, string) error {
	b.shown = ""
	b.dialogue.Reset()
	b.note("A new conversation.")
	return nil
}

func (b *chatter) showStats(context.Context, <-chan os.Signal, string) error {
	if b.last.Prompt == 0 {
		return exit.Usagef("the model has not answered yet, so there are no statistics")
	}
	b.note("%s", b.costs())
	return nil
}

func (b *chatter) leave(context.Context, <-chan os.Signal, string) error { return errLeave }

// set changes an option of the answers that follow.
func (b *chatter) set(_ context.Context, _ <-chan os.Signal, argument string) error {
	name, value, _ := strings.Cut(argument, " ")
	value = strings.TrimSpace(value)
	bad := func(want string) error { return exit.Usagef("/set %s needs %s, not %q", name, want, value) }
	sampler := runtime.Sampler{}
	if b.options.Sampler != nil {
		sampler = *b.options.Sampler
	} else if name == "top-k" || name == "top-p" {
		sampler.Temperature = 1
	}
	switch name {
	case "temperature":
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v >= 0 && v <= math.MaxFloat64) {
			return bad("a number from 0 on")
		}
		sampler.Temperature = v
	case "top-p":
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v >= 0 && v <= 1) {
			return bad("a number from 0 to 1")
		}
		sampler.TopP = v
	case "top-k":
		v, err := strconv.ParseInt(value, 10, 32)
		if err != nil || v < 0 {
			return bad("a whole number from 0 on")
		}
		sampler.TopK = int(v)
	case "seed":
		v, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return bad("a whole number from 0 on")
		}
		b.options.Seed = v
		return nil
	case "tokens":
		v, err := strconv.Atoi(value)
		if err != nil || v < 0 || v > mostTokens {
			return bad(fmt.Sprintf("a whole number from 0 to %d", mostTokens))
		}
		b.options.MaxTokens = v
		return nil
	default:
		return exit.Usagef("/set knows temperature, top-k, top-p, seed and tokens, not %q", name)
	}
	b.options.Sampler = &sampler
	return nil
}

// save writes the conversation to a new file, or to the one that it was saved to before.
func (b *chatter) save(_ context.Context, _ <-chan os.Signal, name string) error {
	text, err := b.dialogue.Save()
	if err != nil {
		return err
	}
	mode := os.O_CREATE | os.O_WRONLY | os.O_EXCL
	if name == b.saved {
		mode = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	}
	f, err := os.OpenFile(name, mode, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return exit.Usagef("%s exists already", name)
	}
	if err != nil {
		return exit.Usagef("%v", err)
	}
	_, err = f.Write(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return exit.Usagef("%v", err)
	}
	b.saved = name
	b.note("Saved %s.", plural(len(b.dialogue.Turns), "message"))
	return nil
}

func (b *chatter) load(ctx context.Context, _ <-chan os.Signal, name string) error {
	text, err := os.ReadFile(name)
	if err == nil {
		err = b.dialogue.Load(ctx, filepath.Base(name), text)
	}
	if err != nil {
		return exit.Usagef("%v", err)
	}
	b.note("Loaded %s.", plural(len(b.dialogue.Turns), "message"))
	return nil
}
