package publish

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/publish/place"
)

// openS3Ref opens a reference.
func openS3Ref(ctx context.Context, ref string) (place.Origin, error) {
	return openS3(ctx, strings.TrimPrefix(ref, "s3://"), place.OpenOptions{Transfer: quick})
}

func TestS3Killed(t *testing.T) {
	newFakeS3(t) // for the account
	f, url := newFresh(t)
	s := S3{Ref: "s3://" + fakes3.Bucket + "/killed", Endpoint: url, Region: "us-east-1", Transfer: quick, Part: fakePart}
	killPlaces(t, killable{
		open: openS3Ref,
		place: func(int) ([]string, string) {
			f.set(fakes3.New())
			return []string{s3Child + "=" + s.Ref, s3Child + "_ENDPOINT=" + url, s3Child + "_PART=" + strconv.Itoa(fakePart)}, s.ref(t)
		},
		sent: f.sent.Load,
		most: (s3Sends + 1) * fakePart, // the parts on their way, and all that is small
	}, killsOr(6), bigPackage(t, 6*fakePart+1))
}
