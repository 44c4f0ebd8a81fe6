package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
)

// chatter holds a conversation with the user.
type chatter struct {
	*tool
	dialogue *chat.Dialogue
	template *chat.Template
	options  runtime.GenerateOptions // of the next answer
	terminal bool
	stats    bool // print those of each answer
	dim      bool // print what is not the answer dimly
	last     chat.Stats
	saved    string // file that this conversation was saved to
	shown    string // names of pictures and clips, as marks, that the next message begins with
	// interrupts counts Ctrl-C since the last message.
	interrupts int
}

// errLeave ends a conversation that the user leaves.
var errLeave = errors.New("leave")

// run answers messages until the input ends or the user leaves.
func (b *chatter) run(ctx context.Context, in lineReader, interrupts <-chan os.Signal) error {
	for {
		message, err := readMessage(ctx, in, "> ", "... ")
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errInterrupted):
			if b.interrupts++; b.interrupts > 1 {
				return nil
			}
			b.note("Ctrl-C again leaves.")
			continue
		case err == nil:
			b.interrupts = 0
			if strings.TrimSpace(message) == "" {
				continue
			}
			in.keep(message)
			err = b.handle(ctx, interrupts, message)
		}
		var usage *exit.UsageError
		var shown *chat.ShownError
		switch {
		case err == nil:
		case errors.Is(err, errLeave):
			return nil
		case b.terminal && (errors.As(err, &usage) || errors.As(err, &shown) || errors.Is(err, chat.ErrFull)):
			report(ctx, b.stderr, err)
		default:
			return err
		}
	}
}

// handle carries out a command, or answers a message. A message that begins with / is written with two.
func (b *chatter) handle(ctx context.Context, interrupts <-chan os.Signal, message string) error {
	if rest, ok := strings.CutPrefix(message, "//"); ok {
		message = "/" + rest
	} else if strings.HasPrefix(message, "/") {
		return b.command(ctx, interrupts, message)
	}
	return b.ask(ctx, interrupts, message)
}

// ask prints the answer to a message.
func (b *chatter) ask(ctx context.Context, interrupts <-chan os.Signal, message string) error {
	message, b.shown = b.shown+message, ""
	answer, done := interruptible(ctx, interrupts)
	out := &thoughts{print: b.print}
	stats, err := b.dialogue.Ask(answer, message, b.options, out.write)
	b.options.Seed++ // a repeated question may have another answer
	times := done()
	if cerr := out.close(); err == nil {
		err = cerr
	}
	if _, werr := io.WriteString(b.stdout, "\n"); err == nil {
		err = werr
	}
	b.last = stats
	if stats.Dropped > 0 {
		b.note("The conversation has reached the end of the context: %s dropped.", plural(stats.Dropped, "old message"))
	}
	if errors.Is(err, errInterrupted) {
		if b.interrupts = times; times > 1 {
			return errLeave
		}
		b.note("Stopped.")
		err = nil
	}
	if err == nil && b.stats && stats.Generated > 0 {
		b.note("%s", b.costs())
	}
	return err
}

// costs describes the last answer.
func (b *chatter) costs() string {
	s := &b.last
	text := plural(s.Prompt, "prompt token")
	if s.Cached > 0 {
		text += fmt.Sprintf(" (%d cached)", s.Cached)
	}
	used, limit := b.dialogue.Used()
	text += fmt.Sprintf(", first token after %.2f s, %s", s.First.Seconds(), plural(s.Generated, "token"))
	if rate := s.Rate(); rate > 0 {
		text += fmt.Sprintf(" at %.1f tokens/s", rate)
	}
	return fmt.Sprintf("%s; %d of %d tokens used", text, used, limit)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// print writes a part of an answer. Thoughts are dim.
func (b *chatter) print(text string, thought bool) error {
	if thought && b.terminal && b.dim {
		_, err := io.WriteString(b.screen, dimmed(sheet.Escape(text)))
		return err
	}
	_, err := io.WriteString(b.stdout, text)
	return err
}

// note prints a line that is not part of an answer.
func (b *chatter) note(format string, args ...any) {
	text := sheet.Escape(fmt.Sprintf(format, args...))
	if b.terminal && b.dim {
		text = dimmed(text)
	}
	fmt.Fprintln(b.stderr, text)
}

func dimmed(text string) string { return "\x1b[2m" + text + "\x1b[0m" }

// interruptible returns a context that an interrupt cancels with errInterrupted; done ends that and returns how many came.
func interruptible(ctx context.Context, interrupts <-chan os.Signal) (answer context.Context, done func() int) {
	answer, cancel := context.WithCancelCause(ctx)
	quit, count := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-interrupts:
				n++
				cancel(errInterrupted)
			case <-quit:
				count <- n
				return
			}
		}
	}()
	return answer, func() int {
		close(quit)
		cancel(nil)
		return <-count
	}
}
