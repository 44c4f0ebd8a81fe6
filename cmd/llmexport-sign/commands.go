package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/publish/provenance"
)

// command is a subcommand.
type command struct {
	name, arguments, does string
	// prepare defines the flags and returns a function that runs the command on the positional arguments. There are as
	// many as names in arguments, or more if those end in dots.
	prepare func(*flag.FlagSet) action
}

type action func(ctx context.Context, args []string, stdout io.Writer) error

var commands = []command{
	{"sign", "PACKAGE_DIR", "sign a package, after comparing every file with its manifest", signCommand},
	{"verify", "PACKAGE_DIR", "check that a signature is valid and for this package, and every file", verifyCommand},
	{"sign-file", "FILE...", "sign files, each in FILE" + fileBundle + "; all of them or none", signFileCommand},
	{"verify-file", "FILE...", "check the signatures of files", verifyFileCommand},
	{"keygen", "NAME", "make a key: NAME.key, which stays secret, and NAME.pub", keygenCommand},
	{"provenance", "PACKAGE_DIR", "print the statement that sign would sign", provenanceCommand},
}

func provenanceCommand(*flag.FlagSet) action {
	return func(ctx context.Context, args []string, stdout io.Writer) error {
		_, statement, err := provenance.Of(ctx, args[0])
		if err != nil {
			return err
		}
		_, err = stdout.Write(statement)
		return err
	}
}

// execute finds the command and parses its flags, which may come before or after arguments.
func execute(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		return help(stdout)
	}
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		return exit.Usagef("unknown command %q; llmexport-sign help lists them", args[0])
	}
	c := commands[i]
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	act := c.prepare(flags)
	positional, err := parse(flags, args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return commandHelp(stdout, c, flags)
	case err != nil:
		return exit.Usagef("%s: %v", c.name, err)
	case !c.takes(len(positional)):
		return exit.Usagef("%s needs %s, got %d arguments", c.name, c.arguments, len(positional))
	}
	return act(ctx, positional, stdout)
}

// takes reports whether the command takes n positional arguments.
func (c command) takes(n int) bool {
	names := len(strings.Fields(c.arguments))
	return n == names || n > names && strings.HasSuffix(c.arguments, "...")
}

func parse(flags *flag.FlagSet, args []string) (positional []string, err error) {
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		rest := flags.Args()
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			return append(positional, rest...), nil
		}
		if len(rest) == 0 {
			break
		}
		positional, args = append(positional, rest[0]), rest[1:]
	}
	return positional, nil
}

func help(w io.Writer) error {
	var b strings.Builder
	b.WriteString("llmexport-sign signs packages of llmexport and other files, and verifies such signatures.\n\nCOMMANDS:\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "   %-23s %s\n", c.name+" "+c.arguments, c.does)
	}
	b.WriteString("\nllmexport-sign COMMAND --help lists the flags of a command.\n" +
		"Exit codes: 0 done, 1 failed, 2 bad usage, 3 verification failed, 4 not supported, 130 interrupted.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func commandHelp(w io.Writer, c command, flags *flag.FlagSet) error {
	var b strings.Builder
	fmt.Fprintf(&b, "llmexport-sign %s %s: %s\n", c.name, c.arguments, c.does)
	flags.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "   %-22s %s", strings.TrimSpace("--"+f.Name+" "+value), usage)
		if f.DefValue != "" && f.DefValue != "false" {
			fmt.Fprintf(&b, " (default %s)", f.DefValue)
		}
		b.WriteByte('\n')
	})
	_, err := io.WriteString(w, b.String())
	return err
}
