package quant

import (
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }
