package publish

import (
	"net/http/httptest"
	"testing"

	"github.com/llmexport/llmexport/internal/fakes3"
)

// fakePart is the size of parts in tests; real stores take no less than 5 MiB.
const fakePart = 1 << 20

// fakeS3 is a store that listens, whose account the environment has.
type fakeS3 struct {
	*fakes3.Store
	url string
}

func newFakeS3(t testing.TB) *fakeS3 {
	s := &fakeS3{Store: fakes3.New()}
	server := httptest.NewServer(s.Store)
	s.url = server.URL
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", fakes3.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", fakes3.SecretKey)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return s
}
