package docs_test

import (
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fakes3"
)

var update = flag.Bool("update", false, "rewrite testdata/unrun.txt")

// root is the repository, relative to this package.
const root = ".."

// block is a fenced block of a page.
type block struct {
	page string // relative to the repository
	line int    // of the opening fence
	lang string // empty for none
	text string // between the fences, indentation of the fence removed

	unrun string // why the test does not run it, from a comment before the block
	exit  int    // expected exit code of its last command
}

// commands reports whether readers are meant to type the block.
func (b *block) commands() bool { return b.lang == "sh" || b.lang == "console" }

func (b *block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// first returns the first command of the block.
func (b *block) first() string {
	for line := range strings.Lines(b.text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if line != "" && !strings.HasPrefix(line, "#") {
			return strings.TrimRight(strings.TrimSuffix(line, "\\"), " ")
		}
	}
	return ""
}

var (
	fence   = regexp.MustCompile("^( *)(```+)([a-z]*)\\s*$")
	comment = regexp.MustCompile(`^ *<!-- (given|not run|exit): (.+) -->\s*$`)
	// typed matches a line that a reader would type; only blocks of commands have such lines.
	typed = regexp.MustCompile(`(?m)^\$ |^(llmexport(-sign)?|make|go|npm|pip|adb|docker) +[a-z-]`)
)

// parse returns the blocks of a page, and the names of what the page takes for given.
func parse(page, text string) (blocks []block, given []string, err error) {
	var open *block
	var indent, ticks, reason string
	exit, n := 0, 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case open != nil && m != nil && m[2] == ticks && m[3] == "":
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case m != nil:
			open = &block{page: page, line: n, lang: m[3], unrun: reason, exit: exit}
			indent, ticks, reason, exit = m[1], m[2], "", 0
		case comment.MatchString(line):
			switch c := comment.FindStringSubmatch(line); c[1] {
			case "given":
				given = append(given, strings.Split(c[2], ", ")...)
			case "not run":
				reason = c[2]
			case "exit":
				if exit, err = strconv.Atoi(c[2]); err != nil {
					return nil, nil, fmt.Errorf("%s:%d: %w", page, n, err)
				}
			}
		case strings.TrimSpace(line) != "" && (reason != "" || exit != 0):
			return nil, nil, fmt.Errorf("%s:%d: text between a comment and its block", page, n)
		}
	}
	if open != nil {
		return nil, nil, fmt.Errorf("%s: the block is not closed", open)
	}
	return blocks, given, nil
}

// page is a document with blocks.
type page struct {
	name   string
	given  []string
	blocks []block
}

// pages reads all documents for readers of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(".", func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && e.Name() == "testdata" {
			return filepath.SkipDir
		}
		if strings.HasSuffix(p, ".md") {
			names = append(names, "docs/"+filepath.ToSlash(p))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var list []page
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		blocks, given, err := parse(name, string(text))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, page{name, given, blocks})
	}
	return list
}

// TestBlocks: commands stand in blocks of commands, and testdata/unrun.txt lists those that TestCommands does not run.
func TestBlocks(t *testing.T) {
	var unrun strings.Builder
	runnable := 0
	for _, p := range pages(t) {
		for i := range p.blocks {
			switch b := &p.blocks[i]; {
			case !b.commands() && typed.MatchString(b.text) && b.lang != "yaml" && p.name != "docs/cli.md":
				t.Errorf("%s has commands: call it sh or console, so that they are run", b)
			case !b.commands() && (b.unrun != "" || b.exit != 0):
				t.Errorf("%s has a comment for commands and is none", b)
			case b.unrun != "":
				fmt.Fprintf(&unrun, "%s: %s: %s\n", b.page, b.unrun, b.first())
			case b.commands():
				runnable++
			}
		}
	}
	if runnable == 0 {
		t.Error("no block is run")
	}
	const file = "testdata/unrun.txt"
	if *update {
		if err := os.WriteFile(file, []byte(unrun.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := unrun.String(); got != strings.ReplaceAll(string(was), "\r\n", "\n") {
		t.Errorf("%s is old; go test ./docs -run TestBlocks -update rewrites it. Blocks that are not run:\n%s", file, got)
	}
}

// world is where commands of pages run: a hub with repositories, an S3 store, and one small checkpoint under a well-known name.
type world struct {
	bin string
	env []string
}

// repositories are the models that pages name. Their content is the tiny checkpoint of testdata.
var repositories = []string{"Qwen/Qwen3-0.6B", "Qwen/Qwen3-32B", "HuggingFaceTB/SmolLM2-135M-Instruct"}

func newWorld(t *testing.T) *world {
	t.Helper()
	hub := fakehub.New()
	model := filepath.Join(t.TempDir(), "model")
	copyTo(t, model, "testdata/tiny-qwen3")
	write(t, model, "README.md", "---\nlicense: apache-2.0\n---\n")
	for _, name := range repositories {
		if _, err := hub.Repo(name).CommitDir("main", model, nil); err != nil {
			t.Fatal(err)
		}
	}
	server := hub.Start(t)
	s3 := httptest.NewServer(fakes3.New())
	t.Cleanup(s3.Close)
	w := &world{bin: t.TempDir()}
	w.build(t, "cmd/llmexport")
	w.env = []string{
		"PATH=" + w.bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HF_ENDPOINT=" + server.URL, "HF_TOKEN=" + fakehub.Token,
		"AWS_ACCESS_KEY_ID=" + fakes3.AccessKey, "AWS_SECRET_ACCESS_KEY=" + fakes3.SecretKey, "AWS_ENDPOINT_URL=" + s3.URL,
		"MODELSCOPE_ENDPOINT=" + server.URL, "MODELSCOPE_API_TOKEN=" + fakehub.Token,
		"AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true", "NO_COLOR=1", "LC_ALL=C.UTF-8",
	}
	return w
}

// build adds the program in a folder of the repository.
func (w *world) build(t *testing.T, folder string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "build", "-o", w.bin, ".")
	c.Dir, c.Env = filepath.Join(root, filepath.FromSlash(folder)), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// run runs a command line with bash in dir, and returns its output and exit code.
func (w *world) run(t *testing.T, dir, line string) (string, int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", line)
	home := filepath.Join(dir, ".home")
	c.Dir, c.Env = dir, append(slices.Clone(w.env), "HOME="+home, "HF_HOME="+filepath.Join(home, "huggingface"), "TMPDIR="+t.TempDir())
	out, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Fatalf("bash: %v", err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// things are what a page can take for given, by name.
var things = map[string]func(t *testing.T, w *world, dir string){
	// A directory with the checkpoint of the repository.
	"checkpoint": func(t *testing.T, _ *world, dir string) {
		copyTo(t, filepath.Join(dir, "Qwen3-0.6B"), "testdata/tiny-qwen3")
	},
	// Two packages of the repository, and the recipe that made them.
	"packages": func(t *testing.T, w *world, dir string) {
		write(t, dir, "qwen3.yaml", recipe)
		if out, code := w.run(t, dir, "llmexport run qwen3.yaml"); code != 0 {
			t.Fatalf("exit code %d\n%s", code, out)
		}
	},
	"signer": func(t *testing.T, w *world, _ string) { w.build(t, "cmd/llmexport-sign") },
	// The folders of a clone that recipes and texts are in.
	"clone": func(t *testing.T, _ *world, dir string) {
		for _, name := range []string{"recipes", "testdata/tiny-qwen3"} {
			copyTo(t, filepath.Join(dir, name), name)
		}
	},
}

const recipe = `version: 1
name: qwen3-0.6b-int4
model: {repo: Qwen/Qwen3-0.6B}
quantize: {method: rtn, bits: 4}
verify: {perplexity: {window: 64, windows: 1}}
publish: [{dir: "dist/{name}"}]
variants:
  - {name: qwen3-0.6b-int8, quantize: {bits: 8}}
`

func copyTo(t *testing.T, to, name string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(filepath.Join(root, filepath.FromSlash(name)))); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// named matches the first line of a YAML block that is a file: its name in a comment.
var named = regexp.MustCompile(`^# ([\w.-]+\.ya?ml)\b.*\n`)

// TestCommands runs the blocks of every page in order, in an empty directory of the page. YAML that begins with a file name in
// a comment becomes that file. A block must end with the exit code of its comment, 0 without one; where it shows output, the
// output must have these lines in this order.
func TestCommands(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("builds the program and runs it many times")
	case runtime.GOOS == "windows":
		t.Skip("the pages are for a POSIX shell")
	}
	w := newWorld(t)
	for _, p := range pages(t) {
		if !slices.ContainsFunc(p.blocks, func(b block) bool { return b.commands() && b.unrun == "" }) {
			continue
		}
		t.Run(strings.ReplaceAll(strings.TrimPrefix(p.name, "docs/"), "/", "-"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range p.given {
				provide, ok := things[name]
				if !ok {
					t.Fatalf("%s takes %q for given, which is none of the things of this test", p.name, name)
				}
				provide(t, w, dir)
			}
			for i := range p.blocks {
				if err := w.check(t, dir, &p.blocks[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// check does what a block of a page asks for, and returns what is wrong with it.
func (w *world) check(t *testing.T, dir string, b *block) error {
	t.Helper()
	if m := named.FindStringSubmatch(b.text); b.lang == "yaml" && m != nil {
		write(t, dir, m[1], b.text)
		return nil
	}
	if !b.commands() || b.unrun != "" {
		return nil
	}
	list := steps(b)
	for i, s := range list {
		want := 0
		if i == len(list)-1 {
			want = b.exit
		}
		out, code := w.run(t, dir, s.line)
		if code != want {
			return fmt.Errorf("%s: exit code %d, want %d\n$ %s\n%s", b, code, want, s.line, out)
		}
		if missing, ok := s.shows(out); !ok {
			return fmt.Errorf("%s: the output lacks, at this place, %q\n$ %s\n%s", b, missing, s.line, out)
		}
	}
	return nil
}

// step is a command line with the output that the page shows for it.
type step struct {
	line  string
	lines []string
}

// steps splits a block: all lines of sh are one script; in console a line with a dollar sign begins a command, which a
// backslash at its end continues.
func steps(b *block) (list []step) {
	if b.lang == "sh" {
		return []step{{line: b.text}}
	}
	open := false
	for line := range strings.Lines(b.text) {
		line = strings.TrimRight(line, "\r\n")
		command, begins := strings.CutPrefix(line, "$ ")
		switch {
		case begins:
			list = append(list, step{line: command})
		case open:
			list[len(list)-1].line += "\n" + line
		case len(list) > 0:
			list[len(list)-1].lines = append(list[len(list)-1].lines, line)
		}
		open = (begins || open) && strings.HasSuffix(line, `\`)
	}
	return list
}

// shows reports whether out has the lines of the page in their order; "..." in a line stands for anything, and a line of
// nothing else for any number of lines. Otherwise it returns the first line that is missing.
func (s *step) shows(out string) (missing string, ok bool) {
	rest := slices.Collect(strings.Lines(out))
	gap := true
	for _, want := range s.lines {
		if strings.TrimSpace(want) == "..." {
			gap = true
			continue
		}
		parts := strings.Split(strings.TrimRight(want, " "), "...")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile(`^` + strings.Join(parts, `.*`) + `$`)
		at := slices.IndexFunc(rest, func(line string) bool { return pattern.MatchString(strings.TrimRight(line, " \r\n")) })
		if at < 0 || at > 0 && !gap {
			return want, false
		}
		rest, gap = rest[at+1:], false
	}
	return "", true
}

// The test can fail: each of these pages is wrong in one way.
func TestPagesThatAreWrong(t *testing.T) {
	for name, text := range map[string]string{
		"open":    "```sh\ntrue\n",
		"apart":   "<!-- not run: network -->\n\ntext\n\n```sh\ntrue\n```\n",
		"no code": "<!-- exit: two -->\n```sh\ntrue\n```\n",
	} {
		if _, _, err := parse(name, text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if runtime.GOOS == "windows" {
		t.Skip("no bash")
	}
	w := &world{env: []string{"PATH=" + os.Getenv("PATH")}}
	for text, want := range map[string]bool{
		"```sh\ntrue\n```\n":                                               true,
		"```sh\nfalse\ntrue\n```\n":                                        false,
		"```sh\nfalse | true\n```\n":                                       false,
		"<!-- exit: 3 -->\n```sh\nexit 3\n```\n":                           true,
		"<!-- exit: 3 -->\n```sh\ntrue\n```\n":                             false,
		"```console\n$ echo a; echo b; echo c\na\nb\n```\n":                true,
		"```console\n$ echo a; echo b; echo c\na\nc\n```\n":                false,
		"```console\n$ echo a; echo b; echo c\n...\nc\n```\n":              true,
		"```console\n$ echo a; echo b; echo c\na\n...\nd\n```\n":           false,
		"```console\n$ echo 12 tokens\n... tokens\n```\n":                  true,
		"```console\n$ echo \\\n  one\none\n$ false\n```\n":                false,
		"```yaml\n# a.yaml is a file\nx: 1\n```\n```sh\ncat a.yaml\n```\n": true,
		"```yaml\nx: 1\n```\n```sh\ncat a.yaml\n```\n":                     false,
	} {
		blocks, _, err := parse("page", text)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		var wrong error
		for i := range blocks {
			wrong = cmp.Or(wrong, w.check(t, dir, &blocks[i]))
		}
		if (wrong == nil) != want {
			t.Errorf("%q: %v", text, wrong)
		}
	}
}
