// Command llmexport-cuda is llmexport with a card of NVIDIA for the large products of calibration: the files of cmd/llmexport, which
// overlay.sh adds to this folder when it is built, and this one. Packages have the bytes that llmexport gives them. It is a module of
// its own because loading the driver needs libc.
package main

import (
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/cmd/llmexport-cuda/internal/cuda"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// card is what --device chose; nil is the CPU.
var card *cuda.Engine

func init() {
	extend, examine = addDevice, examineCards
	bound = func(memory int64) {
		if card != nil {
			card.Bound(uint64(memory))
		}
	}
}

// addDevice adds the flag that chooses what computes products.
func addDevice(app *cli.App) {
	app.Flags = append(app.Flags, &cli.StringFlag{Name: "device", Value: "auto",
		Usage: "`NAME` of what computes large products of calibration, with the same bytes: cpu, cuda, cuda:N, or auto: cuda if it can be used"})
	before, after := app.Before, app.After
	addMeasure(app.Command("bench"))
	app.Before = func(c *cli.Context) (err error) {
		if err = before(c); err != nil {
			return err
		}
		card, err = openDevice(c.String("device"))
		if card != nil {
			card.Prove()
			kernel.SetDevice(card)
			zerolog.Ctx(c.Context).Debug().Stringer("card", card.Card()).Msg("large products are computed on a card")
		}
		return err
	}
	app.After = func(c *cli.Context) error {
		if card != nil {
			s := card.Spent()
			zerolog.Ctx(c.Context).Debug().Int64("products", s.Products).Float64("teraflop", float64(s.Multiplications)*2e-12).
				Int64("sent", s.Sent).Int64("received", s.Received).Msg("computed on the card")
		}
		if after != nil {
			return after(c)
		}
		return nil
	}
}

// openDevice opens what --device names; nil is the CPU.
func openDevice(name string) (*cuda.Engine, error) {
	kind, number, numbered := strings.Cut(name, ":")
	n := 0
	if numbered {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 0 || kind != "cuda" {
			return nil, exit.Usagef("--device must be auto, cpu, cuda or cuda:N, not %q", name)
		}
	}
	switch kind {
	case "cpu":
		return nil, nil
	case "auto":
		card, err := cuda.Open(0)
		if err != nil {
			return nil, nil // doctor says why
		}
		return card, nil
	case "cuda":
		card, err := cuda.Open(n)
		if err != nil {
			return nil, exit.Usagef("--device %s: %v", name, err)
		}
		return card, nil
	}
	return nil, exit.Usagef("--device must be auto, cpu, cuda or cuda:N, not %q", name)
}

// examineCards tells doctor what cards there are.
func examineCards(x *examination) {
	cards, err := cuda.Cards()
	if err != nil {
		x.add(finding{Check: "card", State: skipped, Detail: err.Error()})
	}
	for _, c := range cards {
		f := finding{Check: "card", State: fine, Detail: c.String(), Bytes: int64(c.Memory)}
		if err := cuda.Usable(c); err != nil {
			f.State, f.Detail = warning, err.Error()
		}
		x.add(f)
	}
}
