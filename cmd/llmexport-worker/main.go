// Command llmexport-worker makes a release of many packages on many machines: a Temporal worker that runs the stages of recipes,
// and the commands that start and follow a release. It is a separate program in a module of its own because its dependencies are
// larger than those of the rest of the project.
//
// A fleet file says what the release consists of, see docs/fleet.md. The bytes of models and packages travel through a shared
// store.
//
// Exit codes: 0 done, 1 failed, 2 wrong recipe, fleet or usage, 3 failed verification, 4 not supported, 130 interrupted.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// run is main without access to the process.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a clean-up that hangs
	t := &tool{stdout: stdout, stderr: stderr}
	return report(ctx, stderr, t.app().RunContext(ctx, args))
}
