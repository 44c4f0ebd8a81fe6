package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// startServer runs llmexport serve on a free port and returns its address.
func startServer(t *testing.T, env []string, args ...string) (url string, cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), "llmexport", append([]string{"serve"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	errs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	patience := time.AfterFunc(interruptPatience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { patience.Stop() })
	lines := bufio.NewScanner(errs)
	var told bytes.Buffer
	for lines.Scan() {
		told.WriteString(lines.Text() + "\n")
		if m := regexp.MustCompile(`^\S+ at (http://\S+)/, interface at http://\S+/v1$`).FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, errs) }()
			return m[1], cmd
		}
	}
	t.Fatalf("the server did not start:\n%s", told.String())
	return "", nil
}

// TestServe: a server answers, lets nobody in without its token, and ends well when it is told to.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := smallPackage(t)
	url, cmd := startServer(t, []string{tokenVariable + "=secret"}, dir, "--listen", "127.0.0.1:0", "--name", "little")
	ask := func(token string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/completions", strings.NewReader(`{"model":"little","prompt":"x","max_tokens":3}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	status, text := ask("secret")
	var a struct {
		Model string
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != 200 || a.Model != "little" || a.Usage.Completion == 0 {
		t.Errorf("status %d, %v: %s", status, err, text)
	}
	if status, text := ask("wrong"); status != 401 {
		t.Errorf("status %d: %s", status, text)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
