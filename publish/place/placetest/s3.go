package placetest

import (
	"net/http/httptest"
	"testing"

	"github.com/llmexport/llmexport/internal/fakes3"
)

// S3Part is the size of parts in tests; real stores take no less than 5 MiB.
const S3Part = 1 << 20

// S3 is a store that listens, whose account the environment has.
type S3 struct {
	*fakes3.Store
	URL string
}

// NewS3 starts one.
func NewS3(t testing.TB) *S3 {
	s := &S3{Store: fakes3.New()}
	server := httptest.NewServer(s.Store)
	s.URL = server.URL
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", fakes3.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", fakes3.SecretKey)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return s
}
