package channel

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var start = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

// pkg is a package called name whose bytes are those of its version.
func pkg(name, version string) Package {
	return Package{Name: name, Digest: digest.Of([]byte(name + version)), At: version, Facts: Facts{Bytes: 1}}
}

// text lists the releases, newest first, those that were withdrawn in brackets.
func (h History) text() string {
	var list []string
	for _, r := range h {
		var names []string
		for _, p := range r.Packages {
			names = append(names, p.Name+p.At)
		}
		one := strings.Join(names, "+")
		if !r.Withdrawn.IsZero() {
			one = "[" + one + "]"
		}
		list = append(list, one)
	}
	return strings.Join(list, " ")
}

func TestMove(t *testing.T) {
	a, b := func(v string) Package { return pkg("a", v) }, func(v string) Package { return pkg("b", v) }
	var h History
	for i, step := range []struct {
		move   []Package
		status Status
		want   string
	}{
		{[]Package{b("1"), a("1")}, Moved, "a1+b1"},
		{[]Package{a("1"), b("1")}, Unchanged, "a1+b1"},
		{[]Package{a("1")}, Unchanged, "a1+b1"},
		{[]Package{a("2")}, Moved, "a2+b1 a1+b1"}, // the other package stays
		{[]Package{a("3"), b("3")}, Moved, "a3+b3 a2+b1 a1+b1"},
		{nil, "", "[a3+b3] a2+b1 a1+b1"},                                // rolled back
		{[]Package{a("3"), b("3")}, Withdrawn, "[a3+b3] a2+b1 a1+b1"},   // a rerun does not undo it
		{[]Package{a("3")}, Withdrawn, "[a3+b3] a2+b1 a1+b1"},           // nor does a part of it
		{[]Package{a("4"), b("3")}, Moved, "a4+b3 [a3+b3] a2+b1 a1+b1"}, // a mended package does
		{[]Package{pkg("c", "1")}, Moved, "a4+b3+c1 a4+b3 [a3+b3] a2+b1 a1+b1"},
	} {
		before := h.text()
		was := h
		status := Status("")
		if step.move == nil {
			i, err := h.Target("")
			if err != nil {
				t.Fatal(err)
			}
			h = h.Rollback(start, i)
		} else {
			h, status = h.Move(start.Add(time.Duration(i)*time.Hour+time.Millisecond), step.move)
		}
		if status != step.status || h.text() != step.want || was.text() != before {
			t.Fatalf("step %d: %s, %q, want %s, %q; before %q, now %q", i, status, h.text(), step.status, step.want, before, was.text())
		}
		if err := h.check(); err != nil {
			t.Fatal(err)
		}
	}
	h, err := h.Without(start, "c")
	if err != nil || !strings.HasPrefix(h.text(), "a4+b3 a4+b3+c1") {
		t.Errorf("%s, %v", h.text(), err)
	}
	if _, err := h.Without(start, "z"); err == nil {
		t.Error("a package that is not there was removed")
	}
	if _, err := (History{{Moved: start, Packages: []Package{a("1")}}}).Without(start, "a"); err == nil {
		t.Error("the last package was removed")
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var h History
	for i := range MaxReleases + 3 {
		h, _ = h.Move(start, []Package{pkg("a", fmt.Sprint(i))})
	}
	if len(h) != MaxReleases || h[0].Packages[0].At != fmt.Sprint(MaxReleases+2) {
		t.Errorf("%d releases, %s", len(h), h.text())
	}
}

// TestLargeRelease: a release has the packages of hundreds of repositories; the history keeps as many releases as an index holds.
func TestLargeRelease(t *testing.T) {
	release := func(n int, version string) (list []Package) {
		for i := range n {
			list = append(list, pkg(fmt.Sprintf("%s-%05d", strings.Repeat("n", 100), i), version))
		}
		return list
	}
	var h History
	for i := range 8 {
		h, _ = h.Move(start, release(3000, fmt.Sprint(i)))
	}
	if len(h) != maxEntries/3000 || h[0].Packages[0].At != "7" || h[1].Packages[0].At != "6" {
		t.Errorf("%d releases", len(h))
	}
	b, err := (Index{"stable": h}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if x, err := Parse(b); err != nil || !x["stable"].Equal(h) {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	// The largest release still has one before it to go back to; a larger one is refused.
	h, _ = History{}.Move(start, release(maxPackages, "1"))
	h, _ = h.Move(start, release(maxPackages, "2"))
	if b, err = (Index{"stable": h}).Marshal(); err != nil || len(h) != 2 {
		t.Errorf("%d releases, %d bytes: %v", len(h), len(b), err)
	}
	h, _ = h.Move(start, release(maxPackages+1, "3"))
	if _, err := (Index{"stable": h}).Marshal(); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("one package too many: %v", err)
	}
}

func TestRollback(t *testing.T) {
	var h History
	for _, v := range []string{"1", "2", "3", "4"} {
		h, _ = h.Move(start, []Package{pkg("a", v)})
	}
	back := func(h History, to, want string) History {
		t.Helper()
		i, err := h.Target(to)
		if err != nil {
			t.Fatal(err)
		}
		if h = h.Rollback(start, i); h.text() != want {
			t.Fatalf("%s, want %s", h.text(), want)
		}
		return h
	}
	once := back(h, "", "[a4] a3 a2 a1")
	twice := back(once, "", "[a4] [a3] a2 a1") // not forward again
	back(twice, "", "[a4] [a3] [a2] a1")
	first := back(h, string(pkg("a", "1").Digest), "[a4] [a3] [a2] a1")
	forward := back(first, pkg("a", "3").Digest.Hex()[:8], "[a4] a3 [a2] a1")
	if r, ok := forward.Current(); !ok || r.Packages[0].At != "3" {
		t.Errorf("%+v", r)
	}
	back(forward, "", "[a4] [a3] [a2] a1")
	for to, want := range map[string]string{
		"":                                 "no earlier release",
		pkg("a", "1").Digest.Hex():         "names the release with",
		"sha256:0000":                      "is not a digest",
		strings.Repeat("0", 64):            "no release of the channel",
		strings.ToUpper("sha256:abcdef01"): "is not a digest",
	} {
		if _, err := first.Target(to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", to, err)
		}
	}
	if _, err := (History)(nil).Target(""); !errors.Is(err, ErrNoEarlier) {
		t.Error(err)
	}
}

func TestChoose(t *testing.T) {
	kl := func(v float64) *float64 { return &v }
	with := func(name string, ram int64, bits float64, kl *float64, verified bool, backends ...string) Package {
		return Package{Name: name, Facts: Facts{DeviceBytes: ram, Bits: bits, KL: kl, Verified: verified, Backends: backends}}
	}
	r := Release{Packages: []Package{
		with("int2", 1<<30, 2.5, kl(.3), true, "cpu", "hexagon"),
		with("int4", 2<<30, 4.5, kl(.04), true, "cpu"),
		with("int8", 4<<30, 8.5, kl(.0005), true, "cpu", "cuda"),
		with("odd", 0, 16, nil, true, "cuda"),
		with("rash", 1<<30, 8, kl(0), false, "cpu"),
	}}
	for _, tc := range []struct {
		want      Want
		name, why string // or the error
	}{
		{Want{MaxRAM: 8 << 30}, "int8", "the least divergence, 0.0005 nats of the 4 of 5 packages that fit 8589934592 bytes (8.0 GiB); it needs"},
		{Want{MaxRAM: 4<<30 - 1}, "int4", "the least divergence, 0.04 nats of the 3 of 5"},
		{Want{MaxRAM: 4 << 30}, "int8", ""},
		{Want{MaxRAM: 1 << 30, For: "android"}, "int2", "run on android"},
		{Want{For: "hexagon"}, "int2", "the only one of 5 packages to run on hexagon"},
		{Want{For: "cuda"}, "int8", "the least divergence, 0.0005 nats of the 2 of 5"},
		{Want{Name: "rash", MaxRAM: 1 << 40}, "rash", ""},
		{Want{Name: "odd"}, "odd", ""},
		{Want{MaxRAM: 1}, "", "no package of the channel fits: int2 needs 1073741824 bytes (1.0 GiB); int4 needs"},
		{Want{For: "metal"}, "", "int2 is made for cpu, hexagon"},
		{Want{Name: "odd", MaxRAM: 1 << 40}, "", "odd does not tell its memory"},
		{Want{Name: "int3"}, "", `no package "int3"; it has int2, int4, int8, odd, rash`},
		{Want{}, "", "the channel names 5 packages: int2, int4"},
	} {
		p, why, err := r.Choose(tc.want)
		text := why
		if err != nil {
			text = err.Error()
		}
		if p.Name != tc.name || !strings.Contains(text, tc.why) || (err == nil) != (tc.name != "") {
			t.Errorf("%+v: %s, %q, want %s, %q", tc.want, p.Name, text, tc.name, tc.why)
		}
	}
	only := Release{Packages: r.Packages[:1]}
	if p, why, err := only.Choose(Want{}); p.Name != "int2" || why != "" || err != nil {
		t.Error(p, why, err)
	}
}

// FuzzIndex: no index panics, and one that is accepted is written as it was understood.
func FuzzIndex(f *testing.F) {
	v := .04
	full := pkg("a", "1")
	full.Facts = Facts{Bytes: 3, DeviceBytes: 4, Bits: 4.5, KL: &v, Engine: "3.6.0", Backends: []string{"cpu"}, Verified: true}
	h, _ := History{}.Move(start, []Package{full, pkg("b", "1")})
	h, _ = h.Move(start, []Package{pkg("a", "2")})
	good, err := Index{"stable": h.Rollback(start, 1), "latest": h}.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	seeds := []string{string(good), `{"version":1,"channels":{}}`, `{"version":2,"channels":{}}`, `{}`,
		strings.Replace(string(good), `"a"`, `"z"`, 1), strings.Replace(string(good), `"at": "1"`, `"at": "../1"`, 1),
		strings.Replace(string(good), "sha256:", "sha1:", 1), strings.Replace(string(good), "stable", "Stable", 1),
		strings.Replace(string(good), `"kl": 0.04`, `"kl": -1`, 1), strings.Replace(string(good), `"bytes": 3`, `"byte": 3`, 1)}
	for i, s := range seeds {
		if _, err := Parse([]byte(s)); (err == nil) != (i < 2) {
			f.Fatalf("%s: %v", s, err)
		}
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Parse(b)
		if err != nil {
			if x != nil {
				t.Fatal("an index with an error")
			}
			return
		}
		text, err := x.Marshal()
		if err != nil {
			if len(b) < MaxSize/2 {
				t.Fatal(err)
			}
			return
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(x, again); d != "" {
			t.Fatal(d)
		}
		for name, h := range x {
			line, err := h.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := ParseHistory(line); err != nil || cmp.Diff(back, h) != "" {
				t.Fatalf("%s: %v", name, err)
			}
		}
	})
}
