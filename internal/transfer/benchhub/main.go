//go:build linux

// Program benchhub downloads one file over loopback with curl piped into sha256sum, with this repository's transfer package and
// with huggingface_hub, in turn, and prints the speed and the peak memory of each.
//
//	go run ./internal/transfer/benchhub -size 10000 -dir /tmp -python venv/bin/python -r 3
//
// Programs that are not installed are skipped. huggingface_hub compares no digest; hf_xet works only with Xet storage and leaves
// a plain server to huggingface_hub, so the two rows show that it costs nothing. The served file takes its size in -source,
// memory by default, and each download the same in -dir; both are removed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/transfer"
)

const repo = "bench/hub"

func main() {
	size := flag.Int64("size", 4000, "size of the file, in megabytes")
	dir := flag.String("dir", os.TempDir(), "directory for the downloads")
	source := flag.String("source", "/dev/shm", "directory for the served file")
	python := flag.String("python", "", "Python interpreter that has huggingface_hub")
	rounds := flag.Int("r", 3, "rounds; each runs every program once")
	connections := flag.Int("connections", 0, "connections of this repository's download; 0 is the default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch args := flag.Args(); {
	case len(args) == 2 && args[0] == "serve":
		err = serve(args[1])
	case len(args) == 5 && args[0] == "fetch":
		err = fetch(ctx, args[1:], *connections)
	case len(args) > 0:
		err = fmt.Errorf("unexpected argument %q", args[0])
	default:
		err = compare(ctx, *size*1_000_000, *dir, *source, *python, *rounds, *connections)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchhub:", err)
		os.Exit(1)
	}
}

// serve serves the file as a hub does, in a process of its own, and prints its address.
func serve(path string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+strings.Repeat("e", 64)+`"`)
		w.Header().Set("X-Repo-Commit", strings.Repeat("c", 40))
		http.ServeFile(w, r, path) // by sendfile
	}))
}

// fetch runs one download in a process of its own: address, path, size, digest.
func fetch(ctx context.Context, args []string, connections int) error {
	u, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	size, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	c := &transfer.Client{Home: u, UserAgent: "benchhub"}
	return transfer.Fetch(ctx, args[1], transfer.Blob{Size: size, SHA256: args[3]}, c.Range(u, size), transfer.Options{Connections: connections})
}

// contender is a program that downloads.
type contender struct {
	name   string
	cmd    func(dir string) *exec.Cmd
	speeds []float64 // megabytes a second
	work   []float64 // processor seconds without the server's; a busy machine hardly changes them
	memory int64     // bytes at most
}

func compare(ctx context.Context, size int64, dir, source, python string, rounds, connections int) (err error) {
	served, err := os.MkdirTemp(source, "benchhub")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(served)) }()
	path := filepath.Join(served, "model.safetensors")
	digest, err := write(ctx, path, size)
	if err != nil {
		return err
	}
	server := exec.CommandContext(ctx, os.Args[0], "serve", path)
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		return err
	}
	file := "http://" + addr + "/" + repo + "/resolve/main/model.safetensors"
	list := contenders(ctx, file, addr, digest, python, size, connections)
	for range rounds {
		for _, c := range list {
			if err := c.measure(dir, size); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	fmt.Printf("%d MB, median of %d rounds\n\n| download | MB/s | least to most | of curl and sha256sum | processor seconds | memory |\n"+
		"| --- | ---: | ---: | ---: | ---: | ---: |\n", size/1_000_000, rounds)
	for _, c := range list {
		slices.Sort(c.speeds)
		slices.Sort(list[0].speeds)
		slices.Sort(c.work)
		median := c.speeds[rounds/2]
		fmt.Printf("| %s | %.0f | %.0f to %.0f | %.2f | %.1f | %d MiB |\n",
			c.name, median, c.speeds[0], c.speeds[rounds-1], median/list[0].speeds[rounds/2], c.work[rounds/2], c.memory>>20)
	}
	return nil
}

func contenders(ctx context.Context, file, addr, digest, python string, size int64, connections int) []*contender {
	list := []*contender{
		{name: "curl and sha256sum", cmd: func(string) *exec.Cmd {
			return exec.CommandContext(ctx, "sh", "-c", `curl -sS --fail "$0" | sha256sum | grep -q "$1"`, file, digest)
		}},
		{name: "llmexport", cmd: func(dir string) *exec.Cmd {
			return exec.CommandContext(ctx, os.Args[0], "-connections", strconv.Itoa(connections),
				"fetch", file, filepath.Join(dir, "file"), strconv.FormatInt(size, 10), digest)
		}},
	}
	if python == "" {
		return list
	}
	for _, xet := range []string{"0", "1"} {
		list = append(list, &contender{name: "huggingface_hub, HF_HUB_DISABLE_XET=" + xet, cmd: func(dir string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, python, "-c", "import huggingface_hub as h; h.hf_hub_download('"+repo+"', 'model.safetensors')")
			cmd.Env = append(os.Environ(), "HF_ENDPOINT=http://"+addr, "HF_HOME="+dir, "HF_HUB_DISABLE_XET="+xet,
				"HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_TOKEN=", "HF_HUB_DISABLE_TELEMETRY=1")
			return cmd
		}})
	}
	return list
}

// measure runs the program once, in a directory that is empty before and removed afterwards.
func (c *contender) measure(dir string, size int64) (err error) {
	to, err := os.MkdirTemp(dir, "benchhub")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(to)) }()
	cmd := c.cmd(to)
	cmd.Stderr = os.Stderr
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	c.speeds = append(c.speeds, float64(size)/1e6/time.Since(start).Seconds())
	c.work = append(c.work, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	if use, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.memory = max(c.memory, use.Maxrss<<10)
	}
	return nil
}

// write creates an incompressible file and returns its digest.
func write(ctx context.Context, path string, size int64) (string, error) {
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := digest.New()
	r := io.LimitReader(transfer.Cancellable(ctx, rand.NewChaCha8([32]byte{})), size)
	if _, err := io.CopyBuffer(io.MultiWriter(f, h), r, make([]byte, 1<<20)); err != nil {
		return "", err
	}
	return h.Hex(), f.Close()
}
