// Command llmexport-cuda is llmexport with a card of NVIDIA for the large products of calibration: the files of cmd/llmexport, which
// overlay.sh adds to this folder when it is built, and this one. Packages have the bytes that llmexport gives them. It is a module of
// its own because loading the driver needs libc.
package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/cmd/llmexport-cuda/internal/cuda"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// cards are what --device chose; without any it is the CPU.
var cards []*cuda.Engine

func init() {
	extend, examine = addDevice, examineCards
	bound = func(memory int64) {
		for _, card := range cards {
			card.Bound(uint64(memory) - cuda.DriverMemory)
		}
	}
}

// addDevice adds the flag that chooses what computes products.
func addDevice(app *cli.App) {
	app.Flags = append(app.Flags, &cli.StringFlag{Name: "device", Value: "auto",
		Usage: "`NAME` of what computes large products of calibration, with the same bytes: cpu, cuda, cuda:N, several cards as\n" +
			"cuda:0,1, or auto: cuda if it can be used"})
	before, after := app.Before, app.After
	addMeasure(app.Command("bench"))
	app.Before = func(c *cli.Context) (err error) {
		if err = before(c); err != nil {
			return err
		}
		slow := time.AfterFunc(time.Second, func() {
			zerolog.Ctx(c.Context).Info().Msg("the driver prepares the kernels for this card, which it does only once")
		})
		cards, err = openDevice(c.String("device"))
		slow.Stop()
		for _, card := range cards {
			card.Prove()
			zerolog.Ctx(c.Context).Debug().Stringer("card", card.Card()).Msg("large products are computed on a card")
		}
		switch {
		case len(cards) == 1:
			kernel.SetDevice(cards[0])
		case len(cards) > 1:
			kernel.SetDevice(cuda.NewGroup(cards))
		}
		return err
	}
	app.After = func(c *cli.Context) error {
		for _, card := range cards {
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

// openDevice opens what --device names; no card is the CPU.
func openDevice(name string) ([]*cuda.Engine, error) {
	kind, list, numbered := strings.Cut(name, ":")
	numbers := []int{0}
	if numbered {
		numbers = nil
		for number := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 || kind != "cuda" || slices.Contains(numbers, n) {
				return nil, misnamed(name)
			}
			numbers = append(numbers, n)
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
		return []*cuda.Engine{card}, nil
	case "cuda":
		var cards []*cuda.Engine
		for _, n := range numbers {
			card, err := cuda.Open(n)
			if err != nil {
				return nil, exit.Usagef("--device %s: %v", name, err)
			}
			cards = append(cards, card)
		}
		return cards, nil
	}
	return nil, misnamed(name)
}

func misnamed(name string) error {
	return exit.Usagef("--device must be auto, cpu, cuda, cuda:N or several different cards as cuda:0,1, not %q", name)
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
