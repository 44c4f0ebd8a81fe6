package publish

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// sent is what another process gets of a package that a place shows.
func sent(t *testing.T, s Shown) Shown {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Shown
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return back
}

// Channels that a process moves to packages which others have published are withdrawn once, and only from those packages.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	shelf := t.TempDir()
	shown := func(version string) Shown {
		at := dir.Place{Path: filepath.Join(shelf, version)}
		r := placetest.Publish(t, at, placetest.Package(t, version))
		p := channel.Package{Name: "a", Digest: r.Digest, At: version, Facts: channel.Facts{Bytes: 1}}
		return Shown{Place{at, Target{Dir: at.Path, Channel: "stable"}}, p}
	}
	first, second := sent(t, shown("1")), sent(t, shown("2"))
	if at, name, err := first.Channel(); err != nil || name != "stable" || at != shelf {
		t.Errorf("%s, %s, %v", at, name, err)
	}
	for _, s := range []Shown{first, second} {
		if _, err := MoveChannels(t.Context(), []Shown{s}); err != nil {
			t.Fatal(err)
		}
	}
	moved := (*MovedOnError)(nil)
	if _, err := Withdraw(t.Context(), []Shown{first}); !errors.As(err, &moved) || moved.Channel != "stable" {
		t.Errorf("the channel names the second release, and the first is withdrawn: %v", err)
	}
	for range 2 { // again after a crash
		m, err := Withdraw(t.Context(), []Shown{second})
		if err != nil || m.Status != channel.Withdrawn || len(m.Packages) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	s, err := dir.OpenShelf(shelf, place.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.History(t.Context(), "stable")
	if now, _ := h.Current(); err != nil || now.Packages[0].At != "1" {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := Withdraw(t.Context(), []Shown{first}); !errors.Is(err, channel.ErrNoEarlier) {
		t.Error(err)
	}
}

func TestShownRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `{"target": {"dir": "/a"}}`, `{"target": {"dir": "/a", "channel": "X"}}`, `{"target": {"dir": "/a", "s3": "s3://b/c", "channel": "x"}}`,
	} {
		var s Shown
		if err := json.Unmarshal([]byte(text), &s); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// FuzzShown: what is read opens the place that was written.
func FuzzShown(f *testing.F) {
	at := Place{dir.Place{Path: "/a/b"}, Target{Dir: "/a/b", Channel: "stable"}}
	b, err := json.Marshal(Shown{at, channel.Package{Name: "a", Digest: digest.Of(nil), At: "b"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"target":{"oci":"r.example/a:b","channel":"stable"},"package":{"name":"a"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Shown
		if json.Unmarshal(b, &s) != nil {
			return
		}
		again := sent(t, s)
		if again.place.String() != s.place.String() || again.release.Name != s.release.Name {
			t.Fatalf("%s is %s", s.place, again.place)
		}
	})
}
