package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"
	"go.temporal.io/sdk/client"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/work"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/shared"
	"github.com/llmexport/llmexport/recipes"
)

func (t *tool) workerCommand() *cli.Command {
	return &cli.Command{
		Name: "worker", Usage: "work on releases until it is interrupted", OnUsageError: usage,
		Description: "A worker takes tasks from the queues that it serves: disk fetches checkpoints, compute calibrates and quantizes, verify\n" +
			"verifies, publish publishes and moves channels, and is the only one that needs the credentials of places. Fleet files may name\n" +
			"others, and verify-ARCH makes reports again on another architecture. Bytes travel through the store, which all workers of a\n" +
			"release share. A worker takes part only in releases of its own version and store.",
		Flags: append(serverFlags(),
			&cli.StringFlag{Name: "queues", Value: strings.Join(flow.Roles(), ","), Usage: "`LIST` of queues; compute=2 takes two tasks at the same time"},
			&cli.StringFlag{Name: "rate", Usage: "`LIST` of queues with the tasks a second that all workers together may begin, such as publish=0.5"},
			&cli.StringFlag{Name: "store", EnvVars: []string{"LLMEXPORT_STORE"}, Usage: "shared store `URL`: s3://BUCKET/PREFIX, oci://REGISTRY/REPOSITORY or a directory"},
			&cli.StringFlag{Name: "cache", Value: defaultCache(), DefaultText: "in the cache of the user", Usage: "directory `DIR` for what is being made; it may be lost"},
			&cli.StringFlag{Name: "cache-size", Usage: "remove what was not used for long after a task, until the cache has at most `SIZE`, such as 200GiB"},
			&cli.StringFlag{Name: "memory", DefaultText: "that of each recipe", Usage: "memory `SIZE` of all tasks together"},
			&cli.IntFlag{Name: "threads", DefaultText: "all cores", Usage: "`N` threads of all tasks together"},
			&cli.StringFlag{Name: "name", DefaultText: "host and process", Usage: "`NAME` of this worker in status and logs"},
			&cli.StringFlag{Name: "metrics", Usage: "serve metrics in Prometheus form at `ADDRESS`, such as :9090"},
		),
		Action: t.worker,
	}
}

func (t *tool) worker(c *cli.Context) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	lanes, err := parseLanes(c.String("queues"), c.String("rate"))
	if err != nil {
		return err
	}
	h, err := host(c, lanes)
	if err != nil {
		return err
	}
	var metrics client.MetricsHandler
	if at := c.String("metrics"); at != "" {
		m, stop, err := work.Metrics(c.Context, at)
		if err != nil {
			return err
		}
		defer stop()
		metrics = m
	}
	if h.Shared, err = shared.Open(c.Context, h.Store); err != nil {
		return err
	}
	cl, err := dial(c, h.Name, metrics)
	if err != nil {
		return err
	}
	defer cl.Close()
	return work.Serve(c.Context, cl, h, lanes)
}

// host reads what a worker may use. Tasks that can run at the same time share it.
func host(c *cli.Context, lanes []work.Lane) (*work.Host, error) {
	h := &work.Host{Name: c.String("name"), Store: c.String("store"), Cache: c.String("cache"), Log: *zerolog.Ctx(c.Context)}
	if h.Store == "" {
		return nil, exit.Usagef("--store is missing: what all workers of a release share, such as s3://bucket/llmexport or a directory")
	}
	if h.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		h.Name = fmt.Sprintf("%s/%d", name, os.Getpid())
	}
	tasks := 0
	for _, l := range lanes {
		tasks += l.Parallel
	}
	for name, to := range map[string]*int64{"memory": &h.Memory, "cache-size": &h.CacheSize} {
		if text := c.String(name); text != "" {
			n, err := recipes.ParseSize(text)
			if err != nil || n == 0 {
				return nil, exit.Usagef("--%s must be a size such as 64GiB, not %q", name, text)
			}
			*to = int64(n)
		}
	}
	h.Memory /= int64(tasks)
	threads := c.Int("threads")
	if threads < 0 {
		return nil, exit.Usagef("--threads must be 0 or more, not %d", threads)
	}
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	h.Threads = max(1, threads/tasks)
	var err error
	h.Code, err = pipeline.Code()
	return h, err
}

// laneRE matches names of queues.
var laneRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)

// maxTasks bounds the tasks of a queue at the same time, to catch typing errors.
const maxTasks = 1000

// parseLanes reads the queues and their rates.
func parseLanes(queues, rates string) ([]work.Lane, error) {
	var lanes []work.Lane
	for item := range strings.SplitSeq(queues, ",") {
		name, number, given := strings.Cut(strings.TrimSpace(item), "=")
		l := work.Lane{Name: name, Parallel: 1}
		if given {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 || n > maxTasks {
				return nil, exit.Usagef("--queues: %s must have a number of tasks from 1 to %d, not %q", name, maxTasks, number)
			}
			l.Parallel = n
		}
		switch {
		case !laneRE.MatchString(name):
			return nil, exit.Usagef("--queues: %q cannot name a queue; the usual ones are %s", name, strings.Join(flow.Roles(), ", "))
		case slices.ContainsFunc(lanes, func(o work.Lane) bool { return o.Name == name }):
			return nil, exit.Usagef("--queues names %s twice", name)
		}
		lanes = append(lanes, l)
	}
	if rates == "" {
		return lanes, nil
	}
	for item := range strings.SplitSeq(rates, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(item), "=")
		i := slices.IndexFunc(lanes, func(l work.Lane) bool { return l.Name == name })
		if i < 0 {
			return nil, exit.Usagef("--rate: %q is not one of --queues", name)
		}
		r, err := strconv.ParseFloat(number, 64)
		if err != nil || !(r > 0 && r < 1e6) {
			return nil, exit.Usagef("--rate: %s must have a number of tasks a second, not %q", name, number)
		}
		lanes[i].Rate = r
	}
	return lanes, nil
}
