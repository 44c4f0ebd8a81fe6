package publish

import (
	"testing"
)

// TestHugeSignatureS3: what cannot be a signature is not read.
func TestHugeSignatureS3(t *testing.T) {
	newFakeS3(t) // for its credentials
	url, sent := newHuge(t)
	bucket, err := openBucket(S3{Ref: "s3://bucket/x", Endpoint: url, Region: "us-east-1", Transfer: quick})
	if err != nil {
		t.Fatal(err)
	}
	wantShort(t, &s3Origin{s3Bucket: bucket}, sent)
}
