// Command llmexport-sign signs packages of llmexport, and files such as its own releases, and verifies such signatures.
// It is a separate program in a module of its own because its dependencies are larger than the rest of the project.
//
// A signature is a sigstore bundle v0.3, signed with a key from a file or with a certificate of Fulcio for an identity.
// The one of a package is a DSSE envelope around the statement that `llmexport provenance` prints, and a file of the
// package. The one of a file is a message signature over its SHA-256, next to the file.
//
// Exit codes: 0 done, 1 failed, 2 bad usage, 3 verification failed, 4 not supported, 130 interrupted.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without access to the process.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a clean-up that hangs
	return report(ctx, stderr, execute(ctx, args, stdout))
}
