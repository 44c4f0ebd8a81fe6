package serve

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Bounds of pictures.
const (
	// maxPictures bounds those of a request.
	maxPictures = 32
	// maxPicturePixels bounds a picture before it is resized: 96 MiB of bytes.
	maxPicturePixels = 1 << 25
	// maxPictureBytes bounds the rows of pictures that are kept for later requests.
	maxPictureBytes = 64 << 20
)

// detail is the area that a picture gets if the tower takes any size, by the name that OpenAI has for it.
func detail(name string) (pixels int, err error) {
	switch name {
	case "low":
		return 512 * 512, nil
	case "high", "auto", "":
		return 1 << 20, nil
	}
	return 0, errors.New("detail must be low, high or auto")
}

// sight is a picture of a request.
type sight struct {
	data   []byte
	pixels int
}

// readImage reads a part of content that is a picture: data in the request, never an address. The server fetches nothing.
func readImage(part *template.Object) (sight, error) {
	for name := range part.All() {
		if name != "type" && name != "image_url" {
			return sight{}, errors.New("this server does not support " + name + " of a part")
		}
	}
	member, _ := part.Get("image_url")
	o, ok := member.(*template.Object)
	if !ok {
		return sight{}, errors.New("image_url must be an object with a url")
	}
	var address, wanted string
	for name, v := range o.All() {
		text, ok := v.(string)
		switch {
		case !ok:
			return sight{}, errors.New(name + " of image_url must be a text")
		case name == "url":
			address = text
		case name == "detail":
			wanted = text
		default:
			return sight{}, errors.New("this server does not support " + name + " of image_url")
		}
	}
	pixels, err := detail(wanted)
	if err != nil {
		return sight{}, err
	}
	data, err := readDataURL(address)
	return sight{data, pixels}, err
}

// readDataURL returns the bytes of data:image/TYPE;base64,DATA.
func readDataURL(address string) ([]byte, error) {
	const example = "data:image/png;base64,DATA"
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok || !strings.EqualFold(scheme, "data") {
		return nil, errors.New("this server fetches no pictures and opens no files: send the picture itself, as " + example)
	}
	kind, data, ok := strings.Cut(rest, ",")
	media, encoded := strings.CutSuffix(strings.ToLower(kind), ";base64")
	if !ok || !encoded || !strings.HasPrefix(media, "image/") {
		return nil, errors.New("the data of a picture must be " + example)
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, errors.New("the data of a picture is not base64")
	}
	return b, nil
}

// sights are the pictures of a conversation, with the marks that stand for them in its texts.
type sights struct {
	marks *chat.Marks
	list  []sight
}

// add returns the text that stands for a picture.
func (x *sights) add(s sight) (string, error) {
	if len(x.list) == maxPictures {
		return "", fmt.Errorf("more than %d pictures", maxPictures)
	}
	x.list = append(x.list, s)
	return x.marks.Next(), nil
}

// eyes read the pictures of requests, one at a time. They bound how many requests have pictures in memory at once, and keep the
// rows of some, so that a conversation that sends its pictures again with each message does not pay for them again.
type eyes struct {
	tower   *runtime.Tower
	context int                 // tokens
	one     *semaphore.Weighted // of the tower
	seats   *semaphore.Weighted // of requests with pictures
	queue   *semaphore.Weighted // of those and the ones that wait

	// The holder of one may use the rest.
	kept  map[sightKey]*list.Element // of glance
	order *list.List                 // the most recently used first
	bytes int64
}

type sightKey struct {
	digest [sha256.Size]byte
	pixels int
}

// glance is a picture that was read.
type glance struct {
	key    sightKey
	prompt *runtime.Prompt
}

func (g *glance) bytes() (n int64) {
	for _, p := range g.prompt.Pictures {
		n += int64(4 * len(p.Rows))
	}
	return n + int64(4*len(g.prompt.Tokens))
}

func newEyes(t *runtime.Tower, o *Options) *eyes {
	return &eyes{
		tower: t, context: o.Context, one: semaphore.NewWeighted(1), seats: semaphore.NewWeighted(int64(o.Sessions)),
		queue: semaphore.NewWeighted(int64(o.Sessions + o.Queue)), kept: map[sightKey]*list.Element{}, order: list.New(),
	}
}

// sit waits until the pictures of a request may be in memory. leave ends that.
func (e *eyes) sit(ctx context.Context) (leave func(), err error) {
	if !e.queue.TryAcquire(1) {
		full := failf(http.StatusTooManyRequests, "rate_limit_error", "queue_full", "too many requests with pictures are waiting already; try again later")
		full.retry = time.Second
		return nil, full
	}
	if e.seats.Acquire(ctx, 1) != nil {
		e.queue.Release(1)
		return nil, context.Cause(ctx)
	}
	return func() { e.seats.Release(1); e.queue.Release(1) }, nil
}

// see reads pictures.
func (e *eyes) see(ctx context.Context, list []sight) ([]*runtime.Prompt, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if e.one.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	defer e.one.Release(1)
	prompts, tokens := make([]*runtime.Prompt, len(list)), 0
	for i, s := range list {
		if i > 0 {
			tokens += len(prompts[i-1].Tokens)
		}
		if tokens >= e.context {
			return nil, tooLong("messages", tokens, e.context)
		}
		key := sightKey{sha256.Sum256(s.data), s.pixels}
		if prompts[i] = e.find(key); prompts[i] != nil {
			continue
		}
		p, err := e.look(ctx, s)
		switch {
		case errors.Is(err, tensor.ErrCorrupt), errors.Is(err, tensor.ErrUnsupported):
			return nil, badf("messages", "picture %d: %v", i+1, err)
		case err != nil:
			return nil, err
		}
		prompts[i] = p
		e.keep(&glance{key, p})
	}
	return prompts, nil
}

// look reads a picture.
func (e *eyes) look(ctx context.Context, s sight) (*runtime.Prompt, error) {
	im, err := picture.DecodeWithin(bytes.NewReader(s.data), maxPicturePixels)
	if err != nil {
		return nil, err
	}
	size, err := e.tower.Fit(im.Size(), s.pixels)
	if err != nil {
		return nil, err
	}
	return e.tower.Look(ctx, im, size)
}

// find returns a picture that was read before, or nil.
func (e *eyes) find(key sightKey) *runtime.Prompt {
	at := e.kept[key]
	if at == nil {
		return nil
	}
	e.order.MoveToFront(at)
	return at.Value.(*glance).prompt
}

// keep keeps a picture, in place of those that were not used for longest.
func (e *eyes) keep(g *glance) {
	if g.bytes() > maxPictureBytes {
		return
	}
	e.kept[g.key] = e.order.PushFront(g)
	for e.bytes += g.bytes(); e.bytes > maxPictureBytes; {
		last := e.order.Remove(e.order.Back()).(*glance)
		e.bytes -= last.bytes()
		delete(e.kept, last.key)
	}
}
