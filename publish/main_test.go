package publish

import (
	"testing"
)

func TestMain(m *testing.M) { runTests(m, dirChildren, hubChildren, ociChildren, s3Children) }
