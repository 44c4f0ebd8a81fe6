package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/runtime/kernel"
)

var logLevels = map[string]zerolog.Level{
	"debug": zerolog.DebugLevel, "info": zerolog.InfoLevel, "warn": zerolog.WarnLevel, "error": zerolog.ErrorLevel,
	"off": zerolog.Disabled,
}

// before sets up logging and progress on standard error.
func (t *tool) before(c *cli.Context) error {
	terminal := isTerminal(t.stderr)
	if err := t.progress.start(c.String("progress"), t.stderr, terminal); err != nil {
		return err
	}
	level, ok := logLevels[c.String("log-level")]
	if !ok {
		return exit.Usagef("--log-level must be debug, info, warn, error or off, not %q", c.String("log-level"))
	}
	var log zerolog.Logger
	switch f := c.String("log-format"); f {
	case "json":
		log = zerolog.New(&t.progress)
	case "console":
		log = zerolog.New(zerolog.ConsoleWriter{
			Out: &t.progress, TimeFormat: time.TimeOnly, NoColor: !terminal || os.Getenv("NO_COLOR") != "",
			FormatPrepare: prepareLine,
		})
	default:
		return exit.Usagef("--log-format must be console or json, not %q", f)
	}
	log = log.Level(level).With().Timestamp().Logger()
	if tier, err := kernel.Tier(); err != nil {
		log.Warn().Str("used", tier).Msg(err.Error())
	}
	t.progress.log = log
	c.Context = log.WithContext(c.Context)
	return nil
}

// prepareLine makes the fields of a message readable: durations in two units, other numbers with three digits. Messages are
// escaped; fields are quoted where necessary. Messages in JSON keep all digits.
func prepareLine(line map[string]any) error {
	for name, v := range line {
		n, ok := v.(json.Number)
		switch {
		case name == zerolog.MessageFieldName:
			if text, ok := v.(string); ok {
				line[name] = sheet.Escape(text)
			}
		case ok && (name == "dur" || name == "wait"): // milliseconds
			ms, err := n.Float64()
			if err != nil {
				return err
			}
			line[name] = duration(ms / 1000)
		case ok && strings.ContainsAny(n.String(), ".eE"):
			f, err := n.Float64()
			if err != nil {
				return err
			}
			line[name] = json.Number(strconv.FormatFloat(f, 'g', digits(f), 64))
		}
	}
	return nil
}

// duration is span with more digits below ten seconds.
func duration(seconds float64) string {
	switch {
	case seconds < 1:
		return fmt.Sprintf("%.0fms", 1000*seconds)
	case seconds < 10:
		return fmt.Sprintf("%.1fs", seconds)
	}
	return span(seconds)
}

// digits returns how many digits of f are shown: all before the point, three at least.
func digits(f float64) int {
	return max(3, int(math.Log10(max(math.Abs(f), 1)))+1)
}
