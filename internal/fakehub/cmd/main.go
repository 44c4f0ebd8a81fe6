// Command cmd serves a fake hub for scripts. It prints one line of JSON when it is ready, and serves until it is
// interrupted:
//
//	{"url":"http://127.0.0.1:40001","storage":"http://127.0.0.1:40002","token":"hf_fakeToken0123456789"}
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/llmexport/llmexport/internal/fakehub"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fakehub:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fakehub", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address of the hub; storage takes a free port of the same host")
	dir := flags.String("dir", "", "folder of repositories, ORG/NAME/files; a file DIR/ORG/NAME.sha256, as sha256sum writes it, saves reading them")
	token := flags.String("token", fakehub.Token, "token that may read and write everything")
	objects := flags.String("objects", "", "folder for what is uploaded (default: in memory)")
	faults := flags.String("faults", "", "JSON list of rules of faults")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	h := fakehub.New(fakehub.Options{Dir: *objects})
	h.AddToken(*token, fakehub.User{Name: "tester"})
	if *dir != "" {
		if err := load(h, *dir); err != nil {
			return err
		}
	}
	if *faults != "" {
		var rules []fakehub.Rule
		if err := json.Unmarshal([]byte(*faults), &rules); err != nil {
			return fmt.Errorf("-faults: %w", err)
		}
		if err := h.TryFault(rules...); err != nil {
			return fmt.Errorf("-faults: %w", err)
		}
	}
	s, err := h.Listen(*listen)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := json.NewEncoder(out).Encode(map[string]string{"url": s.URL, "storage": s.StorageURL, "token": *token}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// load makes a repository of every folder DIR/ORG/NAME.
func load(h *fakehub.Hub, dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return err
	}
	for _, path := range found {
		if st, err := os.Stat(path); err != nil || !st.IsDir() {
			continue
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		var known map[string]string
		f, err := os.Open(path + ".sha256")
		if err == nil {
			known, err = fakehub.ReadSums(f)
			f.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s.sha256: %w", path, err)
		}
		if _, err := h.Repo(filepath.ToSlash(rel)).CommitDir("main", path, known); err != nil {
			return err
		}
	}
	return nil
}
