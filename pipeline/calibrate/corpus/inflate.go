package corpus

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// inflater finds out what compressed bytes come to, without trusting them.
type inflater struct {
	codec format.CompressionCodec
	zstd  *zstd.Decoder
	buf   []byte
}

// newInflater refuses the codecs that hardly anybody writes.
func newInflater(codec format.CompressionCodec) (*inflater, error) {
	i := &inflater{codec: codec}
	switch codec {
	case format.Uncompressed, format.Snappy, format.Gzip:
		return i, nil
	case format.Zstd:
		var err error
		i.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage))
		return i, err
	}
	return nil, fmt.Errorf("parquet: compression %v, known are none, SNAPPY, GZIP and ZSTD: %w", codec, tensor.ErrUnsupported)
}

func (i *inflater) close() {
	if i.zstd != nil {
		i.zstd.Close()
	}
}

// is says whether src decompresses to size bytes, at most maxPage.
func (i *inflater) is(src []byte, size int) bool {
	switch i.codec {
	case format.Snappy:
		if n, err := snappy.DecodedLen(src); err != nil || n != size {
			return false
		}
		b, err := snappy.Decode(i.buf[:cap(i.buf)], src)
		i.buf = b
		return err == nil && len(b) == size
	case format.Gzip:
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return false
		}
		n, err := io.Copy(io.Discard, io.LimitReader(r, int64(size)+1))
		return err == nil && n == int64(size)
	case format.Zstd:
		b, err := i.zstd.DecodeAll(src, i.buf[:0])
		i.buf = b
		return err == nil && len(b) == size
	}
	return len(src) == size
}
