package hubs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/place"
)

// headOf returns the first bytes of a file.
func headOf(c place.Cargo, n int64) ([]byte, error) {
	f, err := c.Open()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, min(n, c.Size)))
	return b, errors.Join(err, f.Close())
}

// gitName returns git's name of a file's content after comparing the content with its digest.
func gitName(ctx context.Context, c place.Cargo) (string, error) {
	f, err := c.Open()
	if err != nil {
		return "", err
	}
	h := transfer.Blob{Size: c.Size}.Hash()
	_, err = io.Copy(h, transfer.Cancellable(ctx, place.NewProof(c.File, f)))
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("%s: %w", c.Name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
