package transfer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/fault"
)

// ReadPart extends b, which holds the bytes from off on of a blob of the given size, to n bytes. Responses may be shorter than
// requested; a server without ranges also sends the beginning. After an error, which is [Retryable] if another try may succeed,
// the result holds the bytes received so far.
func ReadPart(ctx context.Context, open Range, b []byte, off, n, size int64, touch func(int)) ([]byte, error) {
	for int64(len(b)) < n {
		at := off + int64(len(b))
		asked, skip := n-int64(len(b)), int64(0)
		body, err := open(ctx, at, asked)
		if errors.Is(err, ErrNoRanges) {
			body, err = open(ctx, 0, size)
			skip = at
		}
		if err != nil {
			return b, err
		}
		had := len(b)
		b, err = readOn(Watch(body, touch), b, skip, asked)
		body.Close()
		if err != nil {
			return b, err
		}
		switch got := int64(len(b) - had); {
		case got == 0:
			return b, &Retryable{Err: io.ErrUnexpectedEOF}
		case got < asked && !fair(got, asked):
			return b, &Retryable{Err: fmt.Errorf("%d bytes of %d that were asked for: %w", got, asked, errSlow)}
		}
	}
	return b, nil
}

// readOn skips skip bytes of r and appends at most n to b.
func readOn(r io.Reader, b []byte, skip, n int64) ([]byte, error) {
	if _, err := io.CopyN(io.Discard, r, skip); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return b, &Retryable{Err: Redact(err)}
	}
	more, err := io.ReadAll(io.LimitReader(r, n)) // which allocates for the bytes received, not for the number announced
	b = append(b, more...)
	if err != nil && int64(len(more)) < n {
		return b, &Retryable{Err: Redact(err)}
	}
	return b, nil
}

// ReadBlob is [Fetch] of a small blob into memory: a truncated read is continued, and content with another digest is read once
// more.
func ReadBlob(ctx context.Context, what string, blob Blob, open Range, o Options) ([]byte, error) {
	if err := blob.check(); err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		var b []byte
		err := Retry(ctx, what, o, func(ctx context.Context, touch func(int)) (bool, error) {
			had := len(b)
			var err error
			b, err = ReadPart(ctx, open, b, 0, blob.Size, blob.Size, touch)
			return fair(int64(len(b)-had), blob.Size-int64(had)), err
		})
		if err != nil {
			return nil, err
		}
		h := blob.Hash()
		h.Write(b)
		sum := hex.EncodeToString(h.Sum(nil))
		if sum == blob.Digest() {
			return b, nil
		}
		err = fmt.Errorf("digest is %s, not %s: %w", sum, blob.Digest(), fault.ErrCorrupt)
		if again {
			return nil, err
		}
		zerolog.Ctx(ctx).Warn().Err(err).Msg("reading it again")
	}
}

// ReadFile reads the file of at most limit bytes at u. A truncated read is continued if the server reports the length of the
// file.
func (c *Client) ReadFile(ctx context.Context, what string, u *url.URL, limit int64, o Options) ([]byte, error) {
	var (
		b    []byte
		size = int64(-1)
	)
	err := Retry(ctx, what, o, func(ctx context.Context, touch func(int)) (bool, error) {
		had := len(b)
		if had > 0 && size > 0 {
			var err error
			b, err = ReadPart(ctx, c.Range(u, size), b, 0, size, size, touch)
			return fair(int64(len(b)-had), size-int64(had)), err
		}
		resp, err := c.Get(ctx, u, nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			if c.Judge != nil {
				return false, c.Judge(resp)
			}
			return false, StatusOf(resp)
		}
		size = resp.ContentLength
		if size > limit {
			return false, tooLong(resp, limit)
		}
		b, err = readOn(Watch(resp.Body, touch), nil, 0, limit+1)
		if int64(len(b)) > limit {
			return false, tooLong(resp, limit)
		}
		return fair(int64(len(b)), max(size, 0)), err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

func tooLong(resp *http.Response, limit int64) error {
	return fmt.Errorf("%s answers with more than %d bytes: %w", resp.Request.URL.Host, limit, fault.ErrCorrupt)
}
