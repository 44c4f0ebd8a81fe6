package cpu

import (
	"testing"

	"github.com/llmexport/llmexport/backends/backendtest"
)

func TestConformance(t *testing.T) { backendtest.Run(t, Backend{}) }
