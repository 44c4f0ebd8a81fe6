package safetensors

import (
	"os"
	"runtime/debug"
	"slices"

	second "github.com/nlpodyssey/safetensors"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxCrossCheck is the longest header that is read a second time, in bytes: the other parser builds a
// map for every tensor. Real headers stay below 1 MB.
const maxCrossCheck = 16 << 20

// crossCheckFile lets the second parser read the header of a file of size bytes over a memory map, and
// compares. The parser wants the whole file as one slice, of which it touches the header's pages only.
// Nothing happens where files cannot be mapped: h has been checked in full already.
func crossCheckFile(f *os.File, size int64, h *Header) (err error) {
	if h.Size > maxCrossCheck || int64(int(size)) != size {
		return nil
	}
	b, unmap, err := tensor.MapFile(f, int(size))
	if err != nil {
		return nil
	}
	defer unmap()
	// A file cut short by someone else makes a mapped page unreadable; that is its error, not our end.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = corrupt("header: unreadable through the memory map (%v)", r)
		}
	}()
	return crossCheck(b, h)
}

// crossCheck compares h with what the second parser reads from b, a whole file.
func crossCheck(b []byte, h *Header) error {
	for _, e := range h.Entries {
		if e.DType == tensor.F8E4M3 || e.DType == tensor.F8E5M2 {
			return nil // it refuses the whole file
		}
	}
	n, meta, err := second.ReadMetadata(b)
	if err != nil {
		return corrupt("header: the second parser refuses it (%v)", err)
	}
	tensors := meta.Tensors()
	if int64(n)+8 != h.Size || len(tensors) != len(h.Entries) || len(meta.Metadata()) != len(h.Metadata) {
		return corrupt("header: the second parser finds %d tensors after byte %d, not %d after %d",
			len(tensors), n+8, len(h.Entries), h.Size)
	}
	for k, v := range h.Metadata {
		if w, ok := meta.Metadata()[k]; !ok || w != v {
			return corrupt("header: the second parser reads metadata %s differently", quote(k))
		}
	}
	for _, e := range h.Entries {
		t := tensors[e.Name]
		if t == nil || t.DType.String() != e.DType.String() ||
			!slices.EqualFunc(t.Shape, e.Shape, func(a uint64, b int64) bool { return int64(a) == b }) ||
			int64(t.DataOffsets[0]) != e.Offset-h.Size || int64(t.DataOffsets[1]) != e.Offset-h.Size+e.Size {
			return corrupt("tensor %s: the second parser reads its entry differently", quote(e.Name))
		}
	}
	return nil
}
