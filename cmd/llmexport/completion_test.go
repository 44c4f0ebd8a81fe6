package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// completions run the script of a shell, from a file, and print what the shell completes an incomplete command to, a line for
// each possibility.
var completions = []struct {
	shell, program string
	script         func(file, line string) (args []string, stdin string)
}{
	{"bash", "bash", func(file, line string) ([]string, string) {
		// The function is called as readline does: with the words before the cursor, the last of which may be empty. Readline
		// completes files where the function finds nothing, if the option default is set.
		return []string{"--norc", "-c", `source "$0"; line=$1; COMP_WORDS=($line); [[ $line == *" " ]] && COMP_WORDS+=(""); ` +
			`COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _llmexport; ` +
			`[[ ${#COMPREPLY[@]} = 0 && $(complete -p llmexport) == *"-o default"* ]] && COMPREPLY=($(compgen -f -- "${COMP_WORDS[-1]}")); ` +
			`printf '%s\n' "${COMPREPLY[@]}"`, file, line}, ""
	}},
	{"zsh", "zsh", func(file, line string) ([]string, string) {
		// An interactive shell in a terminal of its own: Tab is pressed, and the widget prints the matches.
		return []string{"-f", "-c", `zmodload zsh/zpty; zpty z zsh -f -i
			zpty -w z "PS1=@@ RPROMPT=; unsetopt zle_bracketed_paste beep; autoload -U compinit; compinit -u -d $HOME/dump; source $1"
			zpty -w z 'compadd() { builtin compadd -A found "$@"; print -l -- "<<${(@)^found}>>" "" > /dev/tty; builtin compadd "$@" }; print rea""dy'
			zpty -r z out '*ready*@@*'
			zpty -w -n z "$2"$'\t'; zpty -w -n z $'\x15print do\"\"ne\n'; zpty -r z out '*done*'
			for l in ${(f)out}; do [[ $l = *"<<"*">>"* ]] && print -- "${${l#*<<}%>>*}"; done; true`, "zsh", file, line}, ""
	}},
	{"fish", "fish", func(file, line string) ([]string, string) {
		return []string{"--no-config", "-c", "source $argv[1]; complete -C $argv[2] | string replace -r '\\t.*' ''; true", file, line}, ""
	}},
	{"powershell", "pwsh", func(file, line string) ([]string, string) {
		return []string{"-NoProfile", "-NonInteractive", "-Command", "-"}, fmt.Sprintf(
			". '%s'\n(TabExpansion2 '%s' %d).CompletionMatches | ForEach-Object { $_.CompletionText }\n", file, line, len(line))
	}},
}

func TestCompletionInShells(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, c := range completions {
		t.Run(c.shell, func(t *testing.T) {
			t.Parallel()
			if runtime.GOOS == "windows" && c.shell != "powershell" {
				t.Skip("on Windows only PowerShell is a shell of the system")
			}
			shell, err := exec.LookPath(c.program)
			if err != nil {
				t.Skipf("%s is not installed; make shells installs what it can", c.program)
			}
			dir := t.TempDir()
			// PowerShell runs only scripts of this suffix.
			file := filepath.Join(dir, "script.ps1")
			script, err := exec.CommandContext(t.Context(), "llmexport", "completion", c.shell).Output()
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string][]byte{file: script, filepath.Join(dir, "qwen3-mine.yaml"): nil, filepath.Join(dir, "checkpoint"): nil} {
				if err := os.WriteFile(name, text, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			for line, want := range map[string][]string{
				"llmexport ca":                       {"cache"},
				"llmexport completion ":              {"bash", "zsh", "fish", "powershell"},
				"llmexport verify --so":              {"--source"},
				"llmexport run qwen3-m":              {"qwen3-moe", "qwen3-mine.yaml"},
				"llmexport inspect check":            {"checkpoint"},
				"llmexport cache gc --kee":           {"--keep"},
				"llmexport run qwen3-moe --no-verif": {"--no-verify"},
			} {
				args, stdin := c.script(file, line)
				cmd := exec.CommandContext(t.Context(), shell, args...)
				cmd.Dir, cmd.Stdin, cmd.Env = dir, strings.NewReader(stdin), append(os.Environ(), "HOME="+dir)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%q: %v\n%s", line, err, out)
				}
				got := strings.Fields(strings.ReplaceAll(string(out), `.\`, "")) // PowerShell names files so on Windows
				for i := range got {
					got[i] = strings.TrimPrefix(got[i], "./")
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(slices.Compact(got), want) {
					t.Errorf("%q: %q, want %q\n%s", line, got, want, out)
				}
			}
		})
	}
}
