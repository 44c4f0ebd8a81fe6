package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
)

// terminal is a program on a pseudoterminal.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File

	mu     sync.Mutex
	more   *sync.Cond
	shown  bytes.Buffer
	read   int // bytes that await has passed
	closed bool
}

// startTerminal runs llmexport with a terminal of 100 columns as its standard streams.
func startTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudoterminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminals here: %v", err)
	}
	defer slave.Close()
	p := &terminal{t: t, cmd: exec.CommandContext(t.Context(), "llmexport", args...), master: master}
	p.more = sync.NewCond(&p.mu)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			p.mu.Lock()
			p.shown.Write(b[:n])
			p.closed = err != nil
			p.mu.Unlock()
			p.more.Broadcast()
			if err != nil {
				return
			}
		}
	}()
	patience := time.AfterFunc(interruptPatience, func() { _ = p.cmd.Process.Kill() })
	t.Cleanup(func() {
		patience.Stop()
		master.Close()
	})
	return p
}

// await waits for text after what was awaited before.
func (p *terminal) await(text string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		rest := p.shown.String()[p.read:]
		if at := strings.Index(rest, text); at >= 0 {
			p.read += at + len(text)
			return
		}
		if p.closed {
			p.t.Fatalf("the program ended before %q; it showed %q", text, p.shown.String())
		}
		p.more.Wait()
	}
}

func (p *terminal) send(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// ended waits for the end and returns the exit code.
func (p *terminal) ended() int {
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// TestChatTerminal talks to a package as a user does: with editing and an interrupted answer.
func TestChatTerminal(t *testing.T) {
	t.Parallel()
	dir, err := stagetest.Export(t.Context(), t.TempDir(), tiny, "quantize: {block: 32}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	const (
		ctrlA, ctrlC, ctrlD, enter = "\x01", "\x03", "\x04", "\r"
		// ctrlP is the arrow up. That has three bytes, the first of which counts as a key of its own if 50 ms pass before the next.
		ctrlP = "\x10"
		dim   = "\x1b[2m"
	)
	p := startTerminal(t, "chat", dir, "--greedy", "--tokens", "5")
	p.await(dim + filepath.Base(dir) + ", 4096 tokens of context. /help lists the commands")
	p.await("> ")
	p.send("fellow citizens" + ctrlA + "My " + enter)
	p.await(dim)
	p.await("prompt tokens, first token after")
	p.await("5 tokens at")
	p.await("> ")
	p.send(ctrlP) // the history has the message as it was edited
	p.await("My fellow citizens")
	p.send(enter)
	p.await("cached), first token")
	p.await("> ")
	p.send("/bogus" + enter)
	p.await("llmexport: unknown command /bogus")
	p.await("> ")
	p.send("/s\t\t" + enter) // the second command that begins so
	p.await("/set needs NAME VALUE")
	p.await("> ")
	p.send("/set tokens 3500" + enter)
	p.await("> ")
	p.send("/set temperature 1" + enter)
	p.await("> ")
	p.send("Tell me a long story" + enter)
	p.await("Tell me a long story")
	p.await("\n")
	p.await("\n") // of the answer: while a line is edited, Ctrl-C is a key
	p.send(ctrlC)
	p.await("Stopped.")
	p.await("> ")
	p.send("/stats" + enter)
	p.await("prompt tokens")
	p.await("> ")
	p.send(ctrlC)
	p.await("Ctrl-C again leaves.")
	p.await("> ")
	p.send(ctrlC)
	if code := p.ended(); code != 0 {
		t.Errorf("left with exit code %d", code)
	}

	p = startTerminal(t, "chat", dir)
	p.await("> ")
	p.send(ctrlD)
	if code := p.ended(); code != 0 {
		t.Errorf("Ctrl-D: exit code %d", code)
	}
	p = startTerminal(t, "chat", dir)
	p.await("> ")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.ended(); code != exit.Interrupted {
		t.Errorf("SIGTERM: exit code %d", code)
	}
}
