// Command llmexport turns a Hugging Face checkpoint into a package for the LLM engine of MNN, and looks at packages.
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

	"github.com/llmexport/llmexport/internal/sheet"
)

func main() {
	// net/http logs there what a server sends without being asked, which may be a token that it was sent.
	log.SetOutput(io.Discard)
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is the program without the process around it.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// From the first signal on the default action is back, so that a second one ends a clean-up that hangs.
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
