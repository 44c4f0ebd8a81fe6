package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/place"
)

func (t *tool) channelsCommand() *cli.Command {
	return &cli.Command{
		Name:  "channels",
		Usage: "show the channels of a place, or take a package out of one",
		Description: "PLACE is where packages are next to each other: a directory or a bucket's prefix above them, hf://ORG/NAME, or\n" +
			"oci://REGISTRY/REPOSITORY. run and publish move channels, rollback moves them back.",
		CustomHelpTemplate: cli.SubcommandHelpTemplate + examples(
			"llmexport channels list oci://ghcr.io/someone/qwen3",
			"llmexport channels list /mnt/releases/qwen3 --json",
			"llmexport channels remove s3://models/qwen3 stable qwen3-0.6b-int2",
		),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the channels and their releases, newest first", ArgsUsage: "PLACE", Flags: []cli.Flag{jsonFlag()},
				Action: t.listChannels, CustomHelpTemplate: help("llmexport channels list hf://someone/qwen3-0.6b-int4"),
			},
			{
				Name: "remove", Usage: "take a package out of a channel; the place keeps it", ArgsUsage: "PLACE CHANNEL PACKAGE",
				Action: t.removeFromChannel, CustomHelpTemplate: help("llmexport channels remove oci://ghcr.io/someone/qwen3 stable qwen3-0.6b-int2"),
			},
		},
	}
}

// openShelf opens the place of a command.
func openShelf(ref string) (place.Shelf, error) {
	if _, err := os.Lstat(ref); err != nil {
		if at, name := place.SplitChannel(ref); name != "" {
			return nil, hint(exit.Usagef("%s names a channel, not a place", ref), fmt.Sprintf("the place is %s, the channel %s", at, name))
		}
	}
	s, err := publish.OpenShelf(ref, place.OpenOptions{UserAgent: "llmexport/" + stage.Version})
	if errors.As(err, new(*place.RefError)) {
		return nil, meantHint(exit.Usagef("%v", err), ref)
	}
	return s, err
}

// named is a channel in JSON output.
type named struct {
	Channel  string          `json:"channel"`
	Releases channel.History `json:"releases"`
}

func (t *tool) listChannels(c *cli.Context) error {
	args, err := arguments(c, "PLACE")
	if err != nil {
		return err
	}
	s, err := openShelf(args[0])
	if err != nil {
		return err
	}
	names, err := s.Channels(c.Context)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	list := make([]named, len(names))
	for i, name := range names {
		list[i].Channel = name
		if list[i].Releases, err = s.History(c.Context, name); err != nil {
			return fmt.Errorf("%s: channel %s: %w", s, name, err)
		}
	}
	if c.Bool("json") {
		return t.printJSON(struct {
			Place    string  `json:"place"`
			Channels []named `json:"channels"`
		}{s.String(), list})
	}
	if len(list) == 0 {
		_, err = fmt.Fprintf(t.stdout, "%s has no channels\n", sheet.Plain(s.String()))
		return err
	}
	return writeChannels(t.stdout, list)
}

// shortDigest is the number of digits that tell digests of a channel apart, and that rollback takes.
const shortDigest = 12

// writeChannels prints every channel with its releases; a star marks the current one.
func writeChannels(w io.Writer, list []named) error {
	table := sheet.New("channel", "", "moved", "package", "digest", ">size", ">bits", ">KL", "at")
	for _, n := range list {
		name, named := n.Channel, false
		for _, r := range n.Releases {
			mark := ""
			switch {
			case !r.Withdrawn.IsZero():
				mark = "withdrawn"
			case !named:
				mark, named = "*", true
			}
			moved := r.Moved.Format(time.DateTime)
			for _, p := range r.Packages {
				bits, kl := "", ""
				if p.Bits > 0 {
					bits = fmt.Sprintf("%.2f", p.Bits)
				}
				if p.KL != nil {
					kl = fmt.Sprintf("%.4f", *p.KL)
				}
				at := p.At
				if hex, ok := strings.CutPrefix(at, "sha256:"); ok {
					at = hex[:shortDigest]
				}
				table.Row(name, mark, moved, p.Name, p.Digest.Hex()[:shortDigest], p.Bytes, bits, kl, at)
				name, mark, moved = "", "", ""
			}
		}
	}
	if err := table.Write(w, true); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\n* is the current release. llmexport rollback PLACE CHANNEL --to DIGEST goes to another one. Times are in UTC.")
	return err
}

func (t *tool) removeFromChannel(c *cli.Context) error {
	args, err := arguments(c, "PLACE", "CHANNEL", "PACKAGE")
	if err != nil {
		return err
	}
	s, err := openShelf(args[0])
	if err != nil {
		return err
	}
	err = s.Update(c.Context, args[1], func(h channel.History) (channel.History, error) { return h.Without(time.Now(), args[2]) })
	if err != nil {
		return fmt.Errorf("%s: channel %s: %w", s, args[1], err)
	}
	_, err = fmt.Fprintf(t.stdout, "channel %s of %s no longer names %s\n", args[1], sheet.Plain(s.String()), sheet.Plain(args[2]))
	return err
}

func (t *tool) rollbackCommand() *cli.Command {
	return &cli.Command{
		Name:      "rollback",
		Usage:     "move a channel back to an earlier release",
		ArgsUsage: "PLACE CHANNEL",
		Description: "The channel goes to the release before the current one, or to the newest with a package of the digest --to. Newer\n" +
			"releases are withdrawn: publishing one of them again does not move the channel, and rollback --to brings it back.\n" +
			"The packages stay in the place. A release with a package that the place no longer has is refused.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "to", Usage: "`DIGEST` of a package of the release, or its first 8 digits or more"},
			jsonFlag(),
		},
		CustomHelpTemplate: help(
			"llmexport rollback hf://someone/qwen3-0.6b-int4 stable",
			"llmexport rollback oci://ghcr.io/someone/qwen3 stable --to sha256:0a1b2c3d",
		),
		Action: t.rollback,
	}
}

func (t *tool) rollback(c *cli.Context) error {
	args, err := arguments(c, "PLACE", "CHANNEL")
	if err != nil {
		return err
	}
	if err := channel.CheckName(args[1]); err != nil {
		return exit.Usagef("%v", err)
	}
	s, err := openShelf(args[0])
	if err != nil {
		return err
	}
	is, was, err := place.Rollback(c.Context, s, args[1], c.String("to"), time.Now())
	if err != nil {
		err = fmt.Errorf("%s: channel %s: %w", s, args[1], err)
		return hint(err, fmt.Sprintf("llmexport channels list %s shows the releases", s))
	}
	if c.Bool("json") {
		return t.printJSON(struct {
			Place   string          `json:"place"`
			Channel string          `json:"channel"`
			Now     channel.Release `json:"now"`
			Before  channel.Release `json:"before"`
		}{s.String(), args[1], is, was})
	}
	_, err = fmt.Fprintf(t.stdout, "channel %s of %s went from %s to %s\n", args[1], sheet.Plain(s.String()), releaseText(was), releaseText(is))
	return err
}

// releaseText lists the packages of a release.
func releaseText(r channel.Release) string {
	var list []string
	for _, p := range r.Packages {
		list = append(list, fmt.Sprintf("%s %s", sheet.Plain(p.Name), p.Digest.Hex()[:shortDigest]))
	}
	return strings.Join(list, ", ")
}
