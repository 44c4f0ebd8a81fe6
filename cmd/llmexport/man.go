package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
)

func (t *tool) manCommand() *cli.Command {
	return &cli.Command{
		Name:      "man",
		Usage:     "write the manual pages into a directory, one for each command",
		ArgsUsage: "DIR",
		Description: "The directory is created if it does not exist. man finds pages in the directories of MANPATH, and in\n" +
			"share/man next to a bin directory of PATH.",
		CustomHelpTemplate: help("llmexport man ~/.local/share/man/man1"),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "DIR")
			if err != nil {
				return err
			}
			v, err := newVersionFacts("")
			if err != nil {
				return err
			}
			day, _, _ := strings.Cut(v.Date, "T")
			return writeManual(args[0], c.App, manual{day, v.Version})
		},
	}
}

// writeManual writes the pages of a program and its commands.
func writeManual(dir string, app *cli.App, m manual) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	write := func(name, page string) error {
		return os.WriteFile(filepath.Join(dir, name+".1"), []byte(page), 0o666)
	}
	if err := write(app.Name, m.program(app)); err != nil {
		return err
	}
	for _, c := range app.VisibleCommands() {
		if c.Name == "help" {
			continue
		}
		if err := write(app.Name+"-"+c.Name, m.command(app.Name, c)); err != nil {
			return err
		}
	}
	return nil
}

// manual formats manual pages, in the macros of man(7).
type manual struct{ date, version string }

// exitCodes and variables are the tables at the end of pages.
var (
	exitCodes = [][2]string{
		{"0", "done"},
		{"1", "failed; diff: the packages differ; doctor: there is a problem"},
		{"2", "bad recipe or usage; nothing was begun"},
		{"3", "verification failed, or the package is damaged; nothing was published or installed"},
		{"4", "the source is not supported"},
		{"130", "interrupted; the next run resumes"},
	}
	variables = [][2]string{
		{"LLMEXPORT_CACHE", "directory of intermediate results, as --cache"},
		{"LLMEXPORT_KERNEL", "use lesser kernels than the CPU has: generic, avx2, avxvnni, avx512, neon, dotprod or i8mm; results do not change"},
		{"HF_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN", "access to gated and private repositories"},
		{"HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME", "the Hugging Face cache, shared with other programs"},
		{"HF_ENDPOINT", "another hub or a mirror"},
		{"HF_HUB_OFFLINE", "use what is cached, without the network"},
		{"MODELSCOPE_ENDPOINT, MODELSCOPE_API_TOKEN", "the same for ModelScope"},
		{"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL", "access to S3"},
		{"HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY", "proxies"},
		{"NO_COLOR", "no colours"},
	}
)

func (m manual) program(app *cli.App) string {
	var b strings.Builder
	m.head(&b, app.Name, app.Usage)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n[options]\n.I command\n[options] [arguments]\n", roff(app.Name))
	b.WriteString(".SH DESCRIPTION\n")
	paragraphs(&b, app.Name+" quantizes a checkpoint, runs the finished package, compares it with the checkpoint, and publishes it if it passes. "+
		"A recipe, a YAML file, names the checkpoint, how it is stored, and the places where it goes.")
	b.WriteString(".SH COMMANDS\n")
	var pages []string
	for _, c := range app.VisibleCommands() {
		if c.Name == "help" {
			continue
		}
		page := app.Name + "-" + c.Name
		fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(page), roff(c.Usage))
		pages = append(pages, page)
	}
	options(&b, "OPTIONS", app.VisibleFlags())
	pairs(&b, "EXIT STATUS", exitCodes)
	pairs(&b, "ENVIRONMENT", variables)
	pairs(&b, "FILES", [][2]string{
		{cacheName, "intermediate results, next to the directory that holds the packages; safe to remove"},
		{"~/.cache/huggingface/hub", "checkpoints, shared with other programs"},
	})
	sample(&b, app.CustomAppHelpTemplate)
	seeAlso(&b, pages)
	return b.String()
}

func (m manual) command(program string, c *cli.Command) string {
	var b strings.Builder
	name := program + " " + c.Name
	m.head(&b, program+"-"+c.Name, c.Usage)
	b.WriteString(".SH SYNOPSIS\n")
	synopsis(&b, name, c)
	for _, s := range c.Subcommands {
		b.WriteString(".br\n")
		synopsis(&b, name+" "+s.Name, s)
	}
	if c.Description != "" {
		b.WriteString(".SH DESCRIPTION\n")
		paragraphs(&b, c.Description)
	}
	options(&b, "OPTIONS", c.VisibleFlags())
	if len(c.Subcommands) > 0 {
		b.WriteString(".SH COMMANDS\n")
	}
	for _, s := range c.Subcommands {
		fmt.Fprintf(&b, ".SS %s\n", roff(s.Name))
		paragraphs(&b, asSentence(s.Usage))
		if s.Description != "" {
			b.WriteString(".PP\n")
			paragraphs(&b, s.Description)
		}
		flags(&b, s.VisibleFlags())
	}
	sample(&b, c.CustomHelpTemplate)
	seeAlso(&b, []string{program})
	return b.String()
}

// head writes the title and the section that whatis(1) reads.
func (m manual) head(b *strings.Builder, page, usage string) {
	fmt.Fprintf(b, ".TH %s 1 \"%s\" \"llmexport %s\"\n", strings.ToUpper(page), m.date, m.version)
	b.WriteString(".nh\n") // hyphens in options would be ambiguous
	fmt.Fprintf(b, ".SH NAME\n%s \\- %s\n", roff(page), roff(usage))
}

func synopsis(b *strings.Builder, name string, c *cli.Command) {
	fmt.Fprintf(b, ".B %s\n", roff(name))
	if len(c.Subcommands) > 0 {
		fmt.Fprintf(b, ".I command\n")
		return
	}
	if len(c.VisibleFlags()) > 0 {
		b.WriteString("[options]\n")
	}
	if args := strings.TrimSpace(c.ArgsUsage); args != "" {
		fmt.Fprintf(b, "%s\n", roff(args))
	}
}

// paragraphs writes a text whose paragraphs are separated by empty lines.
func paragraphs(b *strings.Builder, text string) {
	for i, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		fmt.Fprintf(b, "%s\n", roff(strings.Join(strings.Fields(p), " ")))
	}
}

// asSentence makes a sentence of the summary of a command.
func asSentence(usage string) string { return strings.ToUpper(usage[:1]) + usage[1:] + "." }

func options(b *strings.Builder, title string, list []cli.Flag) {
	if len(list) > 0 {
		fmt.Fprintf(b, ".SH %s\n", title)
		flags(b, list)
	}
}

// flags writes options with their values and defaults, as help texts show them.
func flags(b *strings.Builder, list []cli.Flag) {
	for _, f := range list {
		d, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		var names []string
		for _, n := range f.Names() {
			dash := "--"
			if len(n) == 1 {
				dash = "-"
			}
			names = append(names, `\fB`+roff(dash+n)+`\fR`)
		}
		head := strings.Join(names, ", ")
		value, usage := placeholder(d.GetUsage())
		if d.TakesValue() {
			if value == "" {
				value = "value"
			}
			head += ` \fI` + roff(value) + `\fR`
		}
		if text := strings.Trim(d.GetDefaultText(), `"`); d.TakesValue() && text != "" {
			usage += " (default: " + text + ")"
		}
		if env := d.GetEnvVars(); len(env) > 0 {
			usage += " [" + strings.Join(env, ", ") + "]"
		}
		fmt.Fprintf(b, ".TP\n%s\n%s\n", head, roff(usage))
	}
}

// placeholder returns the name in back quotes of a usage, and the usage without the quotes.
func placeholder(usage string) (name, text string) {
	before, rest, ok := strings.Cut(usage, "`")
	name, after, closed := strings.Cut(rest, "`")
	if !ok || !closed {
		return "", usage
	}
	return name, before + name + after
}

func pairs(b *strings.Builder, title string, list [][2]string) {
	fmt.Fprintf(b, ".SH %s\n", title)
	for _, p := range list {
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(p[0]), roff(p[1]))
	}
}

// sample writes the examples of a help template.
func sample(b *strings.Builder, template string) {
	_, list, ok := strings.Cut(template, "\nEXAMPLES:\n")
	if !ok {
		return
	}
	b.WriteString(".SH EXAMPLES\n.EX\n")
	for line := range strings.Lines(list) {
		fmt.Fprintf(b, "%s\n", roff(strings.TrimSpace(line)))
	}
	b.WriteString(".EE\n")
}

func seeAlso(b *strings.Builder, pages []string) {
	b.WriteString(".SH SEE ALSO\n")
	for i, p := range pages {
		comma := ","
		if i == len(pages)-1 {
			comma = ""
		}
		fmt.Fprintf(b, ".BR %s (1)%s\n", roff(p), comma)
	}
	b.WriteString(".PP\nhttps://github.com/llmexport/llmexport\n")
}

// roff escapes a line of text.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "~", `\(ti`, "^", `\(ha`, "`", `\(ga`, "'", `\(aq`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
