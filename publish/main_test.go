package publish

import (
	"flag"
	"testing"

	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestMain(m *testing.M) { placetest.Main(m, hubChildren, ociChildren, s3Children) }

var update = flag.Bool("update", false, "rewrite the golden files in testdata")
