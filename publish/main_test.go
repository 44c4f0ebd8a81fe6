package publish

import (
	"flag"
	"testing"

	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestMain(m *testing.M) { placetest.Main(m, dirChildren, hubChildren, ociChildren, s3Children) }

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files in testdata")
