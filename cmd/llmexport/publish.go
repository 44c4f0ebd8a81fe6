package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

func (t *tool) publishCommand() *cli.Command {
	return &cli.Command{
		Name:      "publish",
		Usage:     "publish an existing package",
		ArgsUsage: "DIR REF...",
		Description: "DIR is first compared with its manifest. A REF is a place in the syntax of pull; {name} in it stands for the name of\n" +
			"the package, {commit}, {commit:8} and {date} for the commit of the model repository and its day, {version} for the\n" +
			"program that made the package. Several places receive the package together or not at all, as far as their protocols allow.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "show what would change, and change nothing"},
			&cli.BoolFlag{Name: "replace", Usage: "replace packages that llmexport published in these places"},
			&cli.BoolFlag{Name: "private", Usage: "make new repositories private"},
			&cli.StringFlag{Name: "channel", Usage: "`NAME`, such as stable, that moves to the package once all places have it"},
			&cli.StringFlag{Name: "license-ack", Usage: "`ID` of a licence that permits you to publish the package publicly"},
			jsonFlag(),
		},
		CustomHelpTemplate: help(
			"llmexport publish dist/qwen3-0.6b-int4 hf://someone/qwen3-0.6b-int4 --dry-run",
			"llmexport publish dist/qwen3-0.6b-int4 hf://someone/{name} /mnt/releases/{name} --replace",
			"llmexport publish dist/qwen3-0.6b-int4 oci://ghcr.io/someone/qwen3:{name}-{commit:8} --channel stable",
		),
		Action: t.publish,
	}
}

func (t *tool) publish(c *cli.Context) error {
	if c.NArg() < 2 {
		return hint(exit.Usagef("publish needs DIR REF..., got %d arguments", c.NArg()), c.Command.HelpName+" --help shows examples")
	}
	dir := c.Args().First()
	var options []string
	for _, o := range []string{"replace", "private"} {
		if c.Bool(o) {
			options = append(options, o)
		}
	}
	var targets []publish.Target
	for _, ref := range c.Args().Tail() {
		target, err := publish.ParseTarget(ref)
		if err == nil {
			target, err = target.With(options...)
		}
		if err != nil {
			return meantHint(exit.Usagef("%v", err), ref)
		}
		target.LicenseAck, target.Channel = c.String("license-ack"), c.String("channel")
		targets = append(targets, target)
	}
	p, err := place.OpenVerified(c.Context, dir)
	if err != nil {
		return err
	}
	v, err := valuesOf(c.Context, p.Manifest, targets)
	if err != nil {
		return err
	}
	places, err := publish.Places(targets, ".", v)
	if e := (*publish.EntryError)(nil); errors.As(err, &e) {
		return meantHint(exit.Usagef("%v", err), c.Args().Get(1+e.Entry))
	}
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		list, err := publish.Changes(c.Context, places, p)
		if err != nil {
			return ackHint(err)
		}
		return t.printChanges(c.Bool("json"), []preview{{Name: p.Manifest.Name, Digest: p.Manifest.Digest, Places: list}})
	}
	if err := publish.ChannelsReady(c.Context, places); err != nil {
		return err
	}
	receipts, err := publish.All(c.Context, places, p)
	if receipts == nil {
		receipts = []place.Receipt{}
	}
	var moves []publish.Move
	if err == nil {
		var shown []publish.Shown
		if shown, err = publish.ShownAt(places, p, receipts); err == nil {
			moves, err = publish.MoveChannels(c.Context, shown)
		}
	}
	if c.Bool("json") {
		o := struct {
			outcome
			Channels []publish.Move `json:"channels,omitempty"`
		}{outcome{Name: p.Manifest.Name, Published: receipts}, moves}
		if err != nil {
			o.Error = err.Error()
		}
		return errors.Join(ackHint(err), t.printJSON(o))
	}
	return errors.Join(ackHint(err), printReceipts(t.stdout, receipts), printMoves(t.stdout, moves))
}

// moveWords describe the effect on a channel.
var moveWords = map[channel.Status]string{channel.Moved: "moved to", channel.Unchanged: "already names",
	channel.Withdrawn: "stays, because a rollback withdrew this release; it names"}

// printMoves prints a line for each channel.
func printMoves(w io.Writer, moves []publish.Move) error {
	var b strings.Builder
	for _, m := range moves {
		fmt.Fprintf(&b, "channel %s of %s %s %s\n", m.Channel, sheet.Plain(m.Place), moveWords[m.Status], sheet.Plain(strings.Join(m.Packages, ", ")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// valuesOf returns what a package tells of itself and its source.
func valuesOf(ctx context.Context, m *manifest.Manifest, targets []publish.Target) (v publish.Values, err error) {
	v = publish.Values{Name: m.Name, Commit: m.Source.Revision, Version: m.Tool.Version}
	if !slices.ContainsFunc(targets, func(t publish.Target) bool { return t.Uses(publish.DateWord) }) {
		return v, nil
	}
	o, err := hub.OptionsFromEnv()
	if err != nil {
		return v, err
	}
	v.Date, err = publish.DateOf(ctx, m.Source, o)
	return v, err
}

// ackHint adds the flag that acknowledges the licence.
func ackHint(err error) error {
	if e := (*publish.TermsError)(nil); errors.As(err, &e) {
		return hint(exit.Usagef("%v", err), fmt.Sprintf("--license-ack %q", e.ID))
	}
	return err
}

// preview is what publishing a package would change.
type preview struct {
	Name   string              `json:"name"`
	Digest digest.Digest       `json:"digest,omitempty"`
	Places []publish.PlaceDiff `json:"places"`
	Error  string              `json:"error,omitempty"`
}

// printChanges prints the result of a dry run.
func (t *tool) printChanges(asJSON bool, list []preview) error {
	if asJSON {
		return t.printJSON(struct {
			Packages []preview `json:"packages"`
		}{list})
	}
	var b strings.Builder
	for _, p := range list {
		for _, d := range p.Places {
			writeDiff(&b, p.Name, d)
		}
	}
	_, err := io.WriteString(t.stdout, b.String())
	return err
}

// dryWords describe the effect of a publication.
var dryWords = map[place.Status]string{place.Published: "would be published", place.Replaced: "would replace what is there",
	place.Unchanged: "is already there"}

func writeDiff(b *strings.Builder, name string, d publish.PlaceDiff) {
	public := ""
	if d.Public {
		public = " (public)"
	}
	fmt.Fprintf(b, "%s: %s %s, %d bytes to upload\n", sheet.Plain(d.Place+public), sheet.Plain(name), dryWords[d.Status], d.Upload)
	if d.Channel != "" {
		fmt.Fprintf(b, "  moves channel %s\n", d.Channel)
	}
	if d.Creates != "" {
		fmt.Fprintf(b, "  creates %s\n", sheet.Plain(d.Creates))
	}
	for _, x := range []struct {
		sign  string
		names []string
	}{{"+", d.Add}, {"~", d.Change}, {"-", d.Remove}, {"=", d.Keep}} {
		for _, n := range x.names {
			fmt.Fprintf(b, "  %s %s\n", x.sign, sheet.Plain(n))
		}
	}
}

// printReceipts prints a line for each place.
func printReceipts(w io.Writer, receipts []place.Receipt) error {
	var b strings.Builder
	for _, r := range receipts {
		fmt.Fprintf(&b, "%s: %s (%d bytes, %s)\n", r.Status, sheet.Plain(r.Ref), r.Bytes, r.Digest)
		if r.URL != "" {
			fmt.Fprintf(&b, "  %s\n", sheet.Plain(r.URL))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
