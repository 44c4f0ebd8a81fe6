package runtime_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestArm: a whole package has the logits of the engine on arm64. The checksums are of the float32 that the aarch64 wheel 3.6.1 gave
// under qemu-aarch64, with -cpu max and cortex-a72, at precision normal and memory low.
func TestArm(t *testing.T) {
	p := openPackage(t, small(t))
	var ids []int32
	for i := range int32(24) {
		ids = append(ids, (7*i+3)%60)
	}
	for _, tt := range []struct {
		cpu    kernel.ArmCPU
		option int
		want   uint32
	}{
		{kernel.ArmI8MM, 0, 0x3c396da5}, {kernel.ArmBase, 2, 0x54ccc6f5},
	} {
		s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Mode: backend.Int8, Arm: tt.cpu, DynamicOption: tt.option})
		if err != nil {
			t.Fatal(err)
		}
		var logits []byte
		for _, call := range [][]int32{ids[:20], ids[20:21], ids[21:22], ids[22:23], ids[23:]} {
			y, err := s.Forward(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			if logits, err = binary.Append(logits, binary.LittleEndian, y); err != nil {
				t.Fatal(err)
			}
		}
		if got := crc32.ChecksumIEEE(logits); got != tt.want {
			t.Errorf("%s, option %d: checksum %#x, want %#x", tt.cpu, tt.option, got, tt.want)
		}
	}
}
