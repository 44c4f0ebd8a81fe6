package publish

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// openS3Ref opens a reference.
func openS3Ref(ctx context.Context, ref string) (place.Origin, error) {
	return openS3(ctx, strings.TrimPrefix(ref, "s3://"), place.OpenOptions{Transfer: placetest.Quick})
}

func TestS3Killed(t *testing.T) {
	placetest.NewS3(t) // for the account
	f, url := placetest.NewFresh(t)
	s := S3{Ref: "s3://" + fakes3.Bucket + "/killed", Endpoint: url, Region: "us-east-1", Transfer: placetest.Quick, Part: placetest.S3Part}
	placetest.Kill(t, placetest.Killable{
		Open: openS3Ref,
		Place: func(int) ([]string, string) {
			f.Set(fakes3.New())
			return []string{s3Child + "=" + s.Ref, s3Child + "_ENDPOINT=" + url, s3Child + "_PART=" + strconv.Itoa(placetest.S3Part)}, s.ref(t)
		},
		Sent: f.Sent.Load,
		Most: (s3Sends + 1) * placetest.S3Part, // the parts on their way, and all that is small
	}, placetest.Kills(6), placetest.Big(t, 6*placetest.S3Part+1))
}
