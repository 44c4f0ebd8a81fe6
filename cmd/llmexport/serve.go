package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/serve"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// tokenVariable holds the token of a server, which would be in the list of processes as a flag.
const tokenVariable = "LLMEXPORT_SERVE_TOKEN"

func (t *tool) serveCommand() *cli.Command {
	return &cli.Command{
		Name:      "serve",
		Usage:     "serve a package in the form of OpenAI's interface, with a page to try it",
		ArgsUsage: "PACKAGE",
		Description: "Answers chat completions, completions and models under /v1, and has a page to talk to the package at /. With a package of\n" +
			"an embedding model, it answers embeddings and models. Requests run at the same time over one copy of the weights. Without\n" +
			"--token only this machine can be served. SIGTERM and Ctrl-C end the server after the running requests. Options of requests,\n" +
			"and limits: docs/serve.md.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8080", Usage: "listen on `ADDRESS`; port 0 takes a free one"},
			&cli.StringFlag{Name: "name", DefaultText: "that of the directory", Usage: "call the model `NAME`"},
			&cli.StringFlag{Name: "token", EnvVars: []string{tokenVariable}, Usage: "answer only clients that send `TOKEN`"},
			contextFlag(),
			&cli.IntFlag{Name: "parallel", Value: 4, Usage: "compute `N` requests at the same time"},
			&cli.IntFlag{Name: "queue", Value: 64, Usage: "let `N` requests wait; further ones are refused with status 429"},
			&cli.StringFlag{Name: "cache-memory", Value: "1GiB", Usage: "`SIZE` of memory for the keys and values of all requests"},
			&cli.StringFlag{
				Name: "max-body", Value: "4MiB", DefaultText: "4MiB, or 16MiB if the package reads pictures or sound",
				Usage: "refuse requests of more than `SIZE`",
			},
			&cli.DurationFlag{Name: "timeout", Value: 10 * time.Minute, Usage: "end a request after `TIME`, including its time in the queue"},
			&cli.DurationFlag{Name: "grace", Value: 30 * time.Second, Usage: "when the server is told to end, let requests run for `TIME`"},
			&cli.StringSliceFlag{Name: "allow-origin", Usage: "let pages of `ORIGIN`, such as https://example.org, use the server"},
		}, append(computeFlags(), modeFlag())...),
		CustomHelpTemplate: help(
			"llmexport serve dist/qwen3-0.6b-int4",
			"LLMEXPORT_SERVE_TOKEN=secret llmexport serve dist/qwen3-0.6b-int4 --listen 0.0.0.0:8080 --parallel 8",
			"curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"+
				"     -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 50}'",
		),
		Action: t.serve,
	}
}

// shownBody is the default of --max-body for a package that reads pictures or sound.
const shownBody = 16 << 20

// mostSessions bounds --parallel and --queue, to catch typing errors.
const mostSessions = 1 << 16

// serveOptions reads the flags that need no package.
func serveOptions(c *cli.Context) (o serve.Options, err error) {
	if o.Sessions, err = number(c, "parallel", 1, mostSessions); err != nil {
		return o, err
	}
	if o.Queue, err = number(c, "queue", 0, mostSessions); err != nil {
		return o, err
	}
	for name, to := range map[string]*int64{"cache-memory": &o.CacheBytes, "max-body": &o.MaxBody} {
		n, err := recipes.ParseSize(c.String(name))
		if err != nil || n == 0 {
			return o, exit.Usagef("--%s must be a size above 0, such as 512MiB, not %q", name, c.String(name))
		}
		*to = int64(n)
	}
	o.Timeout, o.Grace = c.Duration("timeout"), c.Duration("grace")
	if o.Timeout < time.Second || o.Grace < 0 {
		return o, exit.Usagef("--timeout must be 1s or more, and --grace not negative")
	}
	for _, origin := range c.StringSlice("allow-origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || origin != u.Scheme+"://"+u.Host {
			return o, exit.Usagef("--allow-origin must be SCHEME://HOST or SCHEME://HOST:PORT, not %q", origin)
		}
		o.Origins = append(o.Origins, origin)
	}
	o.Token = c.String("token")
	if c.IsSet("token") && strings.TrimSpace(o.Token) == "" {
		return o, exit.Usagef("the token is empty")
	}
	host, _, err := net.SplitHostPort(c.String("listen"))
	if err != nil {
		return o, exit.Usagef("--listen must be HOST:PORT, not %q", c.String("listen"))
	}
	ip := net.ParseIP(host)
	o.Loopback = ip != nil && ip.IsLoopback() || host == "localhost"
	if !o.Loopback && o.Token == "" {
		return o, hint(exit.Usagef("--listen %s lets other machines in, which needs a token", c.String("listen")),
			"set "+tokenVariable+" or --token; clients send it as their API key")
	}
	return o, nil
}

func (t *tool) serve(c *cli.Context) error {
	args, err := arguments(c, "PACKAGE")
	if err != nil {
		return err
	}
	dir := args[0]
	o, err := serveOptions(c)
	if err != nil {
		return err
	}
	mode, err := modeOption(c)
	if err != nil {
		return err
	}
	compute, err := computeOptions(c, mode)
	if err != nil {
		return err
	}
	if o.Name = c.String("name"); o.Name == "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		o.Name = filepath.Base(abs)
	}
	// An address that is taken is told before the package is opened.
	l, err := (&net.ListenConfig{}).Listen(c.Context, "tcp", c.String("listen"))
	if err != nil {
		return hint(err, "--listen takes another address; port 0 takes a free one")
	}
	defer l.Close()
	p, s, err := openAny(c, dir, compute)
	if err != nil {
		return err
	}
	defer p.Close()
	if p.Task() == runtime.Rerank {
		return hint(fmt.Errorf("%s scores documents, which no endpoint does: %w", dir, tensor.ErrUnsupported), "llmexport rerank runs it")
	}
	if o.Context, err = contextOption(c, p); err != nil {
		return err
	}
	o.Sampler = p.Config.Sampler()
	if p.Task() == runtime.Embed {
		o.Template = nil // that of texts is not of conversations
	} else if o.Template, err = chat.Open(p); errors.Is(err, tensor.ErrUnsupported) {
		o.Template = nil // completions need none
	} else if err != nil {
		return explained(c.Context, dir, err)
	}
	if o.Template != nil {
		if o.Reader, err = openReader(c.Context, p, compute); err != nil {
			return err
		}
	}
	if o.Reader != nil && !c.IsSet("max-body") {
		o.MaxBody = shownBody
	}
	if info, err := os.Stat(filepath.Join(dir, p.Config.LLMModel)); err == nil {
		o.Created = info.ModTime()
	}
	server, err := serve.New(c.Context, p, s, o)
	if err != nil {
		return explained(c.Context, dir, err)
	}
	fmt.Fprintf(&t.progress, "%s at http://%s/, interface at http://%[2]s/v1\n", o.Name, l.Addr())
	if err := server.Serve(c.Context, l); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
