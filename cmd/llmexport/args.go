package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completionFlag is the argument that shells append to request completions.
const completionFlag = "--generate-bash-completion"

// reorder moves flags before positional arguments, as the flag parser requires: flags of the program before the
// command, flags of a command right after its name. "--" ends flags and stays in front of the positional arguments, so
// that these are never parsed as flags.
func reorder(app *cli.App, args []string) []string {
	if len(args) == 0 || args[len(args)-1] == completionFlag {
		return args
	}
	var global, command, positional []string
	var current *cli.Command
	known := app.Commands
	for i := 1; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			positional = append(positional, args[i+1:]...)
			break
		}
		if len(a) > 1 && a[0] == '-' {
			name, _, hasValue := strings.Cut(strings.TrimLeft(a, "-"), "=")
			f, own := (cli.Flag)(nil), false
			if current != nil {
				f = findFlag(current.Flags, name)
				own = f != nil || name == "help" || name == "h"
			}
			if f == nil && !own {
				f = findFlag(app.Flags, name)
			}
			dst := &command
			if current == nil || f != nil && !own {
				dst = &global
			}
			*dst = append(*dst, a)
			if f != nil && !hasValue && takesValue(f) {
				if i++; i == len(args) { // put it last, so that the parser reports the missing value
					if dst == &global {
						command = nil
					}
					return slices.Concat(args[:1], global, command)
				}
				*dst = append(*dst, args[i])
			}
			continue
		}
		if len(positional) == 0 {
			if c := findCommand(known, a); c != nil {
				command = append(command, a)
				current, known = c, c.Subcommands
				continue
			}
		}
		positional = append(positional, a)
	}
	out := slices.Concat(args[:1], global, command)
	if len(positional) > 0 {
		out = append(append(out, "--"), positional...)
	}
	return out
}

func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func findCommand(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}
