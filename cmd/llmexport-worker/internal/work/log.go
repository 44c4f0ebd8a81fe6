package work

import (
	"fmt"

	"github.com/rs/zerolog"
	"go.temporal.io/sdk/log"
)

// Logger gives the SDK a zerolog logger.
func Logger(l zerolog.Logger) log.Logger { return logger{l} }

type logger struct{ zerolog.Logger }

func (l logger) Debug(msg string, keyvals ...any) { write(l.Logger.Debug(), msg, keyvals) }
func (l logger) Info(msg string, keyvals ...any)  { write(l.Logger.Debug(), msg, keyvals) } // of no use to most readers
func (l logger) Warn(msg string, keyvals ...any)  { write(l.Logger.Warn(), msg, keyvals) }
func (l logger) Error(msg string, keyvals ...any) { write(l.Logger.Error(), msg, keyvals) }

func write(e *zerolog.Event, msg string, keyvals []any) {
	for i := 0; i+1 < len(keyvals); i += 2 {
		key := fmt.Sprint(keyvals[i])
		if err, ok := keyvals[i+1].(error); ok {
			e = e.AnErr(key, err)
		} else {
			e = e.Str(key, fmt.Sprint(keyvals[i+1]))
		}
	}
	e.Msg("temporal: " + msg)
}
