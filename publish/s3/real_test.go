//go:build s3

package s3

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/llmexport/llmexport/internal/blob/blobtest"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// TestRealS3 publishes to MinIO, which MINIO_BIN names.
func TestRealS3(t *testing.T) {
	bin := os.Getenv("MINIO_BIN")
	if bin == "" {
		t.Skip("MINIO_BIN names no minio")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	cmd := exec.Command(bin, "server", "--quiet", "--address", addr, t.TempDir())
	cmd.Env = append(os.Environ(), "MINIO_ROOT_USER=testuser", "MINIO_ROOT_PASSWORD=testpassword", "MINIO_BROWSER=off")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Setenv("AWS_ACCESS_KEY_ID", "testuser")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "testpassword")
	store := func(prefix string) Place {
		return Place{Ref: "s3://bucket/" + prefix, Endpoint: "http://" + addr, Region: "us-east-1", Transfer: placetest.Quick, Part: 5 << 20}
	}
	b, err := openBucket(store("x"))
	if err != nil {
		t.Fatal(err)
	}
	// The server answers questions about its health before it takes requests.
	for range 200 {
		if err = b.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	testS3(t, store)
	t.Run("channels", func(t *testing.T) { testShelf(t, store) })
	t.Run("blobs", func(t *testing.T) {
		b, err := OpenBlobs("bucket/blobs?region=us-east-1&endpoint=http://"+addr, placetest.Quick)
		if err != nil {
			t.Fatal(err)
		}
		blobtest.Run(t, b)
	})
	t.Run("killed", func(t *testing.T) {
		s := store("killed")
		placetest.Kill(t, placetest.Killable{
			Open: openRef,
			Place: func(i int) ([]string, string) {
				s.Ref = fmt.Sprintf("s3://bucket/killed/%d", i)
				return []string{publishTo + "=" + s.Ref, publishTo + "_ENDPOINT=" + s.Endpoint, publishTo + "_PART=" + strconv.FormatInt(s.Part, 10)}, s.ref(t)
			},
			Sent: func() int64 { return 0 },
		}, placetest.Kills(20), placetest.Big(t, 6*int(s.Part)+1))
	})
}
