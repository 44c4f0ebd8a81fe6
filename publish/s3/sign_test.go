package s3

import (
	"testing"

	"github.com/llmexport/llmexport/publish/place/placetest"
)

// TestHugeSignatureS3: what cannot be a signature is not read.
func TestHugeSignatureS3(t *testing.T) {
	placetest.NewS3(t) // for its credentials
	url, sent := placetest.NewHuge(t)
	bucket, err := openBucket(Place{Ref: "s3://bucket/x", Endpoint: url, Region: "us-east-1", Transfer: placetest.Quick})
	if err != nil {
		t.Fatal(err)
	}
	placetest.WantShort(t, &origin{store: bucket}, sent)
}
