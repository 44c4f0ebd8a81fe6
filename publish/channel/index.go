package channel

import (
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	// FileName is the name of an index in a place.
	FileName = "channels.json"
	// MaxSize bounds an index in bytes.
	MaxSize = 32 << 20

	version = 1
)

// Index is the channels of a place by name.
type Index map[string]History

// document is the form of an index.
type document struct {
	Version  int   `json:"version"`
	Channels Index `json:"channels"`
}

// Parse reads an index. Anything that Marshal would not write is tensor.ErrCorrupt, and another version of the format
// tensor.ErrUnsupported.
func Parse(b []byte) (Index, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d: %w", FileName, len(b), MaxSize, tensor.ErrCorrupt)
	}
	var of struct {
		Version int `json:"version"`
	}
	if err := jsondoc.Decode(b, &of); err == nil && of.Version > version {
		return nil, fmt.Errorf("%s has version %d, this program reads %d: %w", FileName, of.Version, version, tensor.ErrUnsupported)
	}
	var d document
	err := jsondoc.DecodeStrict(b, &d)
	if err == nil && d.Version != version {
		err = fmt.Errorf("the version is %d, not %d", d.Version, version)
	}
	if err == nil {
		err = d.Channels.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", FileName, err, tensor.ErrCorrupt)
	}
	return d.Channels, nil
}

// Marshal returns the bytes of an index, always the same for the same index.
func (x Index) Marshal() ([]byte, error) {
	if err := x.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", FileName, err)
	}
	if x == nil {
		x = Index{}
	}
	b, err := json.MarshalIndent(document{version, x}, "", " ")
	if err == nil && len(b) >= MaxSize {
		err = fmt.Errorf("%s would have %d bytes, the limit is %d: %w", FileName, len(b), MaxSize, tensor.ErrUnsupported)
	}
	return append(b, '\n'), err
}

func (x Index) check() error {
	if len(x) > maxChannels {
		return fmt.Errorf("%d channels, the limit is %d", len(x), maxChannels)
	}
	for name, h := range x {
		if err := CheckName(name); err != nil {
			return err
		}
		if err := h.check(); err != nil {
			return fmt.Errorf("channel %s: %w", name, err)
		}
	}
	return nil
}

// ParseHistory reads the history of one channel, as MarshalHistory writes it.
func ParseHistory(b []byte) (History, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("the history of the channel has %d bytes, the limit is %d: %w", len(b), MaxSize, tensor.ErrCorrupt)
	}
	var h History
	err := jsondoc.DecodeStrict(b, &h)
	if err == nil {
		err = h.check()
	}
	if err != nil {
		return nil, fmt.Errorf("the history of the channel: %w: %w", err, tensor.ErrCorrupt)
	}
	return h, nil
}

// Marshal returns the history as one line of JSON.
func (h History) Marshal() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	return json.Marshal(h)
}

func (h History) check() error {
	if len(h) == 0 || len(h) > MaxReleases {
		return fmt.Errorf("%d releases, not 1 to %d", len(h), MaxReleases)
	}
	for _, r := range h {
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}
