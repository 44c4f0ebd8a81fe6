package main

import (
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"
	"go.temporal.io/sdk/client"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/work"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline/stage"
)

// tool is the program.
type tool struct{ stdout, stderr io.Writer }

func (t *tool) app() *cli.App {
	cli.VersionPrinter = func(*cli.Context) {}
	return &cli.App{
		Name: "llmexport-worker", Usage: "make a release of many packages on many machines", Version: stage.Version, HideVersion: true,
		Writer: t.stdout, ErrWriter: t.stderr, Suggest: true, ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError: usage,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "log", Value: "console", Usage: "`FORM` of log lines on standard error: console or json"},
			&cli.BoolFlag{Name: "verbose", Usage: "log more"},
		},
		Before:   t.log,
		Commands: []*cli.Command{t.workerCommand(), t.releaseCommand()},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return exit.Usagef("unknown command %q; llmexport-worker help lists them", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
}

func usage(_ *cli.Context, err error, _ bool) error { return exit.Usagef("%v", err) }

// log puts the logger into the context.
func (t *tool) log(c *cli.Context) error {
	w, level := t.stderr, zerolog.InfoLevel
	switch c.String("log") {
	case "json":
	case "console":
		w = zerolog.ConsoleWriter{Out: t.stderr, NoColor: true, TimeFormat: "15:04:05"}
	default:
		return exit.Usagef("--log must be console or json, not %q", c.String("log"))
	}
	if c.Bool("verbose") {
		level = zerolog.DebugLevel
	}
	c.Context = zerolog.New(w).Level(level).With().Timestamp().Logger().WithContext(c.Context)
	return nil
}

// serverFlags say where the server is.
func serverFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "address", Value: client.DefaultHostPort, EnvVars: []string{"TEMPORAL_ADDRESS"}, Usage: "`HOST:PORT` of the Temporal server"},
		&cli.StringFlag{Name: "namespace", Value: client.DefaultNamespace, EnvVars: []string{"TEMPORAL_NAMESPACE"}, Usage: "`NAME` of the namespace"},
		&cli.BoolFlag{Name: "tls", EnvVars: []string{"TEMPORAL_TLS"}, Usage: "use TLS; implied by a certificate or an API key"},
		&cli.StringFlag{Name: "tls-cert", EnvVars: []string{"TEMPORAL_TLS_CLIENT_CERT_PATH"}, Usage: "client certificate in `FILE`, with --tls-key"},
		&cli.StringFlag{Name: "tls-key", EnvVars: []string{"TEMPORAL_TLS_CLIENT_KEY_PATH"}, Usage: "key of the certificate in `FILE`"},
	}
}

// dial connects to the server. The API key, a secret, comes from the environment only.
func dial(c *cli.Context, identity string, metrics client.MetricsHandler) (client.Client, error) {
	o := client.Options{HostPort: c.String("address"), Namespace: c.String("namespace"), Identity: identity, MetricsHandler: metrics,
		Logger: work.Logger(*zerolog.Ctx(c.Context))}
	cert, key, secret := c.String("tls-cert"), c.String("tls-key"), os.Getenv("TEMPORAL_API_KEY")
	if (cert == "") != (key == "") {
		return nil, exit.Usagef("--tls-cert and --tls-key go together")
	}
	if c.Bool("tls") || cert != "" || secret != "" {
		o.ConnectionOptions.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		o.ConnectionOptions.TLS.Certificates = []tls.Certificate{pair}
	}
	if secret != "" {
		o.Credentials = client.NewAPIKeyStaticCredentials(secret)
	}
	return client.DialContext(c.Context, o)
}

// arguments returns the arguments of a command, as many as names. Flags come before them.
func arguments(c *cli.Context, names ...string) ([]string, error) {
	args := c.Args().Slice()
	if i := slices.IndexFunc(args, func(a string) bool { return len(a) > 1 && a[0] == '-' }); i >= 0 {
		return nil, exit.Usagef("%s: flags come before arguments: %s", c.Command.Name, args[i])
	}
	if len(args) != len(names) {
		return nil, exit.Usagef("%s needs %v, got %d arguments", c.Command.Name, names, len(args))
	}
	return args, nil
}

// defaultCache is the local store of a worker that names none.
func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "llmexport-worker"
	}
	return filepath.Join(dir, "llmexport-worker")
}
