package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/llmexport/llmexport/internal/fakehub"
)

type hubKey struct{}

// cmdHub is "hub" and what is done with it:
//
//	hub start                        a hub without repositories, whose address HF_ENDPOINT is from then on
//	hub commit REPO DIR VAR          the files of DIR become the head of main; the variable holds the commit
//	hub back REPO COMMIT             main is that commit again
//	hub gate REPO                    access has to be asked for, and the program's token has it not
//	hub asked REPO STATUS COUNT      so many questions for the head of main had that answer
//	hub fault RULE...                requests go wrong from then on, by rules in JSON; without any all goes well again
func cmdHub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: hub start|commit|back|gate|asked ...")
	}
	if args[0] == "start" {
		h := fakehub.New()
		s, err := h.Listen("127.0.0.1:0")
		ts.Check(err)
		ts.Defer(s.Close)
		ts.Value(hubKey{}).(*hubValue).Hub = h
		ts.Setenv("HF_ENDPOINT", s.URL)
		ts.Setenv("MODELSCOPE_ENDPOINT", s.URL)
		ts.Setenv("HF_HUB_OFFLINE", "")
		return
	}
	h := ts.Value(hubKey{}).(*hubValue).Hub
	if args[0] == "fault" {
		h.ClearFaults()
		for _, text := range args[1:] {
			var rule fakehub.Rule
			ts.Check(json.Unmarshal([]byte(text), &rule))
			ts.Check(h.TryFault(rule))
		}
		return
	}
	switch r := h.Repo(args[1]); args[0] + strconv.Itoa(len(args)) {
	case "commit4":
		commit, err := r.CommitDir("main", ts.MkAbs(args[2]), nil)
		ts.Check(err)
		ts.Setenv(args[3], commit)
	case "back3":
		r.Branch("main", args[2])
	case "gate2":
		h.Fault(fakehub.Rule{Fault: fakehub.Status, Path: "/api/models/" + args[1] + "/*", Status: 403, Code: "GatedRepo"})
	case "asked4":
		n := 0
		for _, r := range h.Requests("GET", "/api/models/"+args[1]+"/revision/main") {
			if strconv.Itoa(r.Status) == args[2] {
				n++
			}
		}
		if strconv.Itoa(n) != args[3] {
			ts.Fatalf("%d answers %s about %s, want %s", n, args[2], args[1], args[3])
		}
	case "sent4": // how often the content of a file was sent
		n := len(h.Requests("GET", "/"+args[1]+"/resolve/*/"+args[2]))
		if strconv.Itoa(n) != args[3] {
			ts.Fatalf("%s was sent %d times, want %s", args[2], n, args[3])
		}
	default:
		ts.Fatalf("no such use of hub: %v", args)
	}
}

// hubValue is the hub of a script, if it has one, and its stores.
type hubValue struct {
	*fakehub.Hub
	stores *stores
}

// cmdCrash is "crash TEXT FILE command args...": kills the command once it has written TEXT, and leaves what it wrote before
// in FILE.
func cmdCrash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: crash TEXT FILE command args...")
	}
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = environment(ts)
	r, w, err := os.Pipe()
	ts.Check(err)
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	ts.Check(cmd.Start())
	w.Close()
	late := time.AfterFunc(interruptPatience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var text strings.Builder
	lines, found := bufio.NewScanner(r), false
	for !found && lines.Scan() {
		fmt.Fprintln(&text, lines.Text())
		found = strings.Contains(lines.Text(), args[0])
	}
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, r)
	_ = cmd.Wait()
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text.String()), 0o666))
	if !found {
		ts.Fatalf("it did not write %q\n%s", args[0], text.String())
	}
}

// cmdHold is "hold FILE": keeps a lock on the file until the script ends.
func cmdHold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold FILE")
	}
	l := flock.New(ts.MkAbs(args[0]))
	if ok, err := l.TryLock(); err != nil || !ok {
		ts.Fatalf("%s: locked %v, %v", args[0], ok, err)
	}
	ts.Defer(func() { _ = l.Unlock() })
}
