package publish

import (
	"testing"

	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestMain(m *testing.M) { placetest.Main(m, dirChildren, hubChildren, ociChildren, s3Children) }
