package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/pipeline"
)

func TestProgressLinesAreThrottled(t *testing.T) {
	var out bytes.Buffer
	var p progress
	if err := p.start("json", &out, false); err != nil {
		t.Fatal(err)
	}
	const total = 10_000
	for i := range int64(total) {
		p.report("fetch", "a", i+1, total)
	}
	p.report("fetch", "b", 1, 0)
	p.stop()
	type line struct {
		Stage, What string
		Done, Total int64
	}
	var lines []line
	for d := json.NewDecoder(&out); d.More(); {
		var l line
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	// The loop takes far less than a second, so that ten lines a second are few.
	if n := len(lines); n < 3 || n > 100 {
		t.Fatalf("%d lines", n)
	}
	if want := (line{"fetch", "a", 1, total}); lines[0] != want {
		t.Errorf("first line %v, want %v", lines[0], want)
	}
	if want := (line{"fetch", "a", total, total}); lines[len(lines)-2] != want {
		t.Errorf("line of the end %v, want %v", lines[len(lines)-2], want)
	}
	if want := (line{"fetch", "b", 1, 0}); lines[len(lines)-1] != want {
		t.Errorf("line of another file %v, want %v", lines[len(lines)-1], want)
	}
}

// Bars on something that is no terminal would fill a log file.
func TestNoBarsWithoutTerminal(t *testing.T) {
	var out bytes.Buffer
	var p progress
	if err := p.start("bar", &out, false); err != nil {
		t.Fatal(err)
	}
	p.report("fetch", "a", 1, 2)
	p.stop()
	if out.Len() != 0 {
		t.Errorf("drew %q", out.String())
	}
}

// Bars must not keep the program from ending, whatever state they are in.
func TestBarsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	var out bytes.Buffer
	var p progress
	if err := p.start("bar", &out, true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.report("fetch", "unknown", 1, 0)
		p.report("fetch", "done", 5, 5)
		p.report("quantize", "half", 1, 2)
		p.report("quantize", "whole", 1, 2)
		p.report("quantize", "whole", 2, 2)
		p.report("quantize", "whole", 1, 2)
		if _, err := p.Write([]byte("message\n")); err != nil {
			t.Fatal(err)
		}
		p.stop()
	}
	if !bytes.Contains(out.Bytes(), []byte("message\n")) {
		t.Errorf("the message is lost: %q", out.String())
	}
}

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		seconds float64
		want    string
	}{{-1, "0s"}, {.4, "0s"}, {59.4, "59s"}, {61, "1m01s"}, {599, "9m59s"}, {629, "10m"}, {3599, "60m"}, {7290, "2h02m"}, {200000, "2d8h"}} {
		if got := span(c.seconds); got != c.want {
			t.Errorf("%v s is %q, want %q", c.seconds, got, c.want)
		}
	}
}

// What stands next to the bar of a stage: no more than is known.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		state pipeline.State
		want  string
	}{
		{pipeline.State{Left: -1, TotalLeft: -1}, "34 %"},
		{pipeline.State{Number: 1, Of: 2, Elapsed: 5, Left: -1, TotalLeft: -1}, "34 %  5s"},
		{pipeline.State{Number: 1, Of: 2, Elapsed: 5, Left: 10, TotalLeft: 100}, "34 %  5s, 10s left, 1m40s in all"},
		{pipeline.State{Number: 2, Of: 2, Elapsed: 5, Left: 10, TotalLeft: 10}, "34 %  5s, 10s left"},
	} {
		if got := times(c.state, .349); got != c.want {
			t.Errorf("%+v: %q, want %q", c.state, got, c.want)
		}
	}
}

// Without a terminal a long stage leaves a message now and then, and a short one none.
func TestMessages(t *testing.T) {
	var out bytes.Buffer
	var p progress
	if err := p.start("auto", &out, false); err != nil {
		t.Fatal(err)
	}
	p.log = zerolog.New(&out)
	s := pipeline.State{Stage: "quantize", Number: 2, Of: 3, Fraction: .5, Elapsed: 61, Left: 30, TotalLeft: 90}
	p.show(s)
	p.show(s)
	if out.Len() > 0 {
		t.Errorf("at once: %s", out.String())
	}
	p.last[""] = line{at: time.Now().Add(-logInterval)}
	p.show(s)
	p.show(s)
	want := `{"level":"info","stage":"quantize","of":"2/3","done":"50 %","elapsed":"1m01s","left":"30s","total_left":"1m30s","message":"in progress"}` + "\n"
	if out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		in   []int
		want string
	}{
		{nil, "none"}, {[]int{3}, "3"}, {[]int{1, 2}, "1-2"}, {[]int{1, 3, 4, 5, 9}, "1, 3-5, 9"},
	} {
		if got := ranges(c.in); got != c.want {
			t.Errorf("ranges(%v) is %q, want %q", c.in, got, c.want)
		}
	}
}

// Every command says what it is for and shows how it is called.
func TestEveryCommandHasExamples(t *testing.T) {
	var walk func(path string, list []*cli.Command)
	walk = func(path string, list []*cli.Command) {
		for _, c := range list {
			at := path + " " + c.Name
			if c.Usage == "" || !bytes.Contains([]byte(c.CustomHelpTemplate), []byte("EXAMPLES:\n   ")) ||
				!bytes.Contains([]byte(c.CustomHelpTemplate), []byte(at)) {
				t.Errorf("%s has no usage or no example that calls it", at)
			}
			walk(at, c.Subcommands)
		}
	}
	walk("llmexport", (&tool{}).app().Commands)
}
