package main

import (
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

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
		return usagef("--log-level must be debug, info, warn, error or off, not %q", c.String("log-level"))
	}
	var log zerolog.Logger
	switch f := c.String("log-format"); f {
	case "json":
		log = zerolog.New(&t.progress)
	case "console":
		zerolog.DurationFieldFormat = zerolog.DurationFormatString
		log = zerolog.New(zerolog.ConsoleWriter{
			Out: &t.progress, TimeFormat: time.TimeOnly, NoColor: !terminal || os.Getenv("NO_COLOR") != "",
			// Fields are quoted where necessary, messages are not.
			FormatPrepare: func(line map[string]any) error {
				if text, ok := line[zerolog.MessageFieldName].(string); ok {
					line[zerolog.MessageFieldName] = sheet.Escape(text)
				}
				return nil
			},
		})
	default:
		return usagef("--log-format must be console or json, not %q", f)
	}
	log = log.Level(level).With().Timestamp().Logger()
	if tier, err := kernel.Tier(); err != nil {
		log.Warn().Str("used", tier).Msg(err.Error())
	}
	t.progress.log = log
	c.Context = log.WithContext(c.Context)
	return nil
}
