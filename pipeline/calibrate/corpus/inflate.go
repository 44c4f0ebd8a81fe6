package corpus

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// inflater decompresses without trusting what it reads.
type inflater struct {
	codec format.CompressionCodec
	zstd  *zstd.Decoder
	buf   []byte
}

// newInflater rejects rare codecs.
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

// bytes decompresses src to exactly size bytes, at most maxPage. They are valid until the next call.
func (i *inflater) bytes(src []byte, size int) ([]byte, bool) {
	switch i.codec {
	case format.Snappy:
		if n, err := snappy.DecodedLen(src); err != nil || n != size {
			return nil, false
		}
		b, err := snappy.Decode(slices.Grow(i.buf[:0], size)[:size], src)
		i.buf = b
		return b, err == nil && len(b) == size
	case format.Gzip:
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil, false
		}
		b := bytes.NewBuffer(i.buf[:0])
		_, err = b.ReadFrom(io.LimitReader(r, int64(size)+1))
		i.buf = b.Bytes()
		return i.buf, err == nil && b.Len() == size
	case format.Zstd:
		b, err := i.zstd.DecodeAll(src, i.buf[:0])
		i.buf = b
		return b, err == nil && len(b) == size
	}
	return src, len(src) == size
}
