package serve

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/sound"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Bounds of pictures and clips.
const (
	// maxAttachments bounds those of a request.
	maxAttachments = 32
	// maxPicturePixels bounds a picture before it is resized: 96 MiB of bytes.
	maxPicturePixels = 1 << 25
	// maxClipSamples bounds a clip before it is converted to the rate of the model: 128 MiB of floats.
	maxClipSamples = 1 << 25
	// maxKeptBytes bounds the rows that are kept for later requests.
	maxKeptBytes = 64 << 20
)

// attachment is a picture or clip of a request.
type attachment struct {
	clip   bool
	pixels int // of a picture: the area that it gets if the tower takes any size
	data   []byte
}

// attachments are the pictures and clips of a conversation, with the marks that stand for them in its texts.
type attachments struct {
	marks *chat.Marks
	list  []attachment
}

// add returns the text that stands for an attachment.
func (x *attachments) add(a attachment) (string, error) {
	if len(x.list) == maxAttachments {
		return "", fmt.Errorf("more than %d pictures and clips", maxAttachments)
	}
	x.list = append(x.list, a)
	return x.marks.Next(), nil
}

// senses read the pictures and clips of requests, one at a time. They bound how many requests have theirs in memory at once, and keep the
// rows of some, so that a conversation that sends them again with each message does not pay for them again.
type senses struct {
	reader  *runtime.Reader
	context int                 // tokens
	one     *semaphore.Weighted // of the reader
	seats   *semaphore.Weighted // of requests with pictures or clips
	queue   *semaphore.Weighted // of those and the ones that wait

	// The holder of one may use the rest.
	kept  map[readingKey]*list.Element // of *reading
	order *list.List                   // the most recently used first
	bytes int64
}

type readingKey struct {
	digest [sha256.Size]byte
	clip   bool
	pixels int
}

// reading is what a picture or clip became.
type reading struct {
	key    readingKey
	prompt *runtime.Prompt
}

func (r *reading) bytes() (n int64) {
	for _, p := range r.prompt.Pictures {
		n += int64(4 * len(p.Rows))
	}
	return n + int64(4*len(r.prompt.Tokens))
}

func newSenses(r *runtime.Reader, o *Options) *senses {
	return &senses{
		reader: r, context: o.Context, one: semaphore.NewWeighted(1), seats: semaphore.NewWeighted(int64(o.Sessions)),
		queue: semaphore.NewWeighted(int64(o.Sessions + o.Queue)), kept: map[readingKey]*list.Element{}, order: list.New(),
	}
}

// sees reports whether pictures are read, hears whether clips are.
func (s *senses) sees() bool  { return s != nil && s.reader.Tower != nil }
func (s *senses) hears() bool { return s != nil && s.reader.Ear != nil }

// sit waits until the pictures and clips of a request may be in memory. leave ends that.
func (s *senses) sit(ctx context.Context) (leave func(), err error) {
	if !s.queue.TryAcquire(1) {
		full := failf(http.StatusTooManyRequests, "rate_limit_error", "queue_full",
			"too many requests with pictures or clips are waiting already; try again later")
		full.retry = time.Second
		return nil, full
	}
	if s.seats.Acquire(ctx, 1) != nil {
		s.queue.Release(1)
		return nil, context.Cause(ctx)
	}
	return func() { s.seats.Release(1); s.queue.Release(1) }, nil
}

// read reads pictures and clips.
func (s *senses) read(ctx context.Context, list []attachment) ([]*runtime.Prompt, error) {
	if s.one.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	defer s.one.Release(1)
	prompts, tokens, count := make([]*runtime.Prompt, len(list)), 0, map[string]int{}
	for i, a := range list {
		if i > 0 {
			tokens += len(prompts[i-1].Tokens)
		}
		if tokens >= s.context {
			return nil, tooLong("messages", tokens, s.context)
		}
		what := "picture"
		if a.clip {
			what = "clip"
		}
		count[what]++
		key := readingKey{sha256.Sum256(a.data), a.clip, a.pixels}
		if prompts[i] = s.find(key); prompts[i] != nil {
			continue
		}
		p, err := s.open(ctx, a)
		switch {
		case errors.Is(err, tensor.ErrCorrupt), errors.Is(err, tensor.ErrUnsupported):
			return nil, badf("messages", "%s %d: %v", what, count[what], err)
		case err != nil:
			return nil, err
		}
		prompts[i] = p
		s.keep(&reading{key, p})
	}
	return prompts, nil
}

// open reads a picture or clip.
func (s *senses) open(ctx context.Context, a attachment) (*runtime.Prompt, error) {
	if a.clip {
		ear := s.reader.Ear
		wave, err := sound.DecodeWithin(bytes.NewReader(a.data), ear.Longest(), maxClipSamples)
		if err != nil {
			return nil, err
		}
		return ear.Hear(ctx, wave)
	}
	tower := s.reader.Tower
	im, err := picture.DecodeWithin(bytes.NewReader(a.data), maxPicturePixels)
	if err != nil {
		return nil, err
	}
	size, err := tower.Fit(im.Size(), a.pixels)
	if err != nil {
		return nil, err
	}
	return tower.Look(ctx, im, size)
}

// find returns what a picture or clip that was read before became, or nil.
func (s *senses) find(key readingKey) *runtime.Prompt {
	at := s.kept[key]
	if at == nil {
		return nil
	}
	s.order.MoveToFront(at)
	return at.Value.(*reading).prompt
}

// keep keeps a reading, in place of those that were not used for longest.
func (s *senses) keep(r *reading) {
	if r.bytes() > maxKeptBytes {
		return
	}
	s.kept[r.key] = s.order.PushFront(r)
	for s.bytes += r.bytes(); s.bytes > maxKeptBytes; {
		last := s.order.Remove(s.order.Back()).(*reading)
		s.bytes -= last.bytes()
		delete(s.kept, last.key)
	}
}
