package s3

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// openRef opens a reference.
func openRef(ctx context.Context, ref string) (place.Origin, error) {
	return Open(ctx, strings.TrimPrefix(ref, "s3://"), place.OpenOptions{Transfer: placetest.Quick})
}

func TestS3Killed(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	placetest.NewS3(t) // for the account
	f, url := placetest.NewFresh(t)
	s := Place{Ref: "s3://" + fakes3.Bucket + "/killed", Endpoint: url, Region: "us-east-1", Transfer: placetest.Quick, Part: placetest.S3Part}
	placetest.Kill(t, placetest.Killable{
		Open: openRef,
		Place: func(int) ([]string, string) {
			f.Set(fakes3.New())
			return []string{publishTo + "=" + s.Ref, publishTo + "_ENDPOINT=" + url, publishTo + "_PART=" + strconv.Itoa(placetest.S3Part)}, s.ref(t)
		},
		Sent: f.Sent.Load,
		Most: (sendsAtOnce + 1) * placetest.S3Part, // the parts on their way, and all that is small
	}, placetest.Kills(6), placetest.Big(t, 6*placetest.S3Part+1))
}
func TestMain(m *testing.M) { placetest.Main(m, children) }
