package s3

import (
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/llmexport/llmexport/internal/blob/blobtest"
	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestBlobs(t *testing.T) {
	s := placetest.NewS3(t)
	open := func(prefix string) *Blobs {
		b, err := OpenBlobs(fakes3.Bucket+"/"+prefix+"?region=us-east-1&endpoint="+s.URL, placetest.Quick)
		if err != nil {
			t.Fatal(err)
		}
		b.part = placetest.S3Part
		return b
	}
	b := open("team/a")
	blobtest.Run(t, b)
	for _, key := range s.Keys() {
		if !strings.HasPrefix(key, "team/a/blobs/") && !strings.HasPrefix(key, "team/a/texts/") {
			t.Errorf("object %s", key)
		}
	}
	if n, _ := s.Pending(); n > 0 {
		t.Errorf("%d uploads were left", n)
	}
	// A tenant does not find what lies in another prefix, even one that its own begins with.
	for _, other := range []string{"team", "team/b", "team/a/c"} {
		if list, err := open(other).Texts(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("%s: %v, %v", other, list, err)
		}
	}
	// An upload that a kill has left is given up once it is old.
	if _, err := b.NewMultipartUpload(t.Context(), b.bucket, b.prefix+"blobs/x", minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		before time.Time
		left   int
	}{{time.Now().Add(-time.Hour), 1}, {time.Now().Add(time.Hour), 0}} {
		if err := b.Tidy(t.Context(), c.before); err != nil {
			t.Error(err)
		}
		if n, _ := s.Pending(); n != c.left {
			t.Errorf("%d uploads left, want %d", n, c.left)
		}
	}
}
