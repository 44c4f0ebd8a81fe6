package publish

import (
	"errors"
	"strings"
	"testing"
)

func TestNamed(t *testing.T) {
	got, err := Target{Dir: "dist/{name}/{name}", Replace: true, LicenseAck: "{odd}"}.Named("x-int4")
	if want := (Target{Dir: "dist/x-int4/x-int4", Replace: true, LicenseAck: "{odd}"}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"dist/{nam}", "dist/{name", "name}"} {
		if _, err := (Target{Dir: bad}).Named("x"); err == nil || !strings.Contains(err.Error(), "the only placeholder") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	var entry *EntryError
	if _, err := Places([]Target{{Dir: "a/../{name}"}, {Dir: "x"}}, ".", "x"); !errors.As(err, &entry) || entry.Entry != 1 {
		t.Errorf("one place twice: %v", err)
	}
	if _, err := Places([]Target{{Dir: "x"}, {Hub: "a/b"}, {Dir: "x/{name}"}}, t.TempDir(), "x"); !errors.As(err, &entry) || entry.Entry != 2 {
		t.Errorf("one place inside another: %v", err)
	}
}
