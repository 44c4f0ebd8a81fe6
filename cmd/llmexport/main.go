// Command llmexport turns a Hugging Face checkpoint into a package for the LLM engine of MNN, and inspects packages.
//
// Results go to standard output, logs and progress to standard error. Exit codes: 0 done, 1 failed, 2 bad recipe or
// usage, 3 verification failed, 4 source not supported, 130 interrupted.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback" // for systems without certificates of authorities, such as an empty container

	"github.com/llmexport/llmexport/internal/sheet"
)

func main() {
	// net/http logs unsolicited responses there, which may contain a token.
	log.SetOutput(io.Discard)
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is main without access to the process.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the default action is restored, so that a second one ends a clean-up that hangs.
	context.AfterFunc(ctx, stop)

	t := &tool{stdin: stdin, stdout: stdout, stderr: stderr, screen: stdout}
	if isTerminal(stdout) {
		t.stdout = &sheet.Screen{W: stdout}
	}
	app := t.app()
	err := app.RunContext(ctx, reorder(app, args))
	t.progress.stop()
	return report(ctx, stderr, err)
}
