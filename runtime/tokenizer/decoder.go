package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// decoder makes a text of tokens as they are spelled in the vocabulary. One decoder's tokens are the next one's, and those of the
// last are joined. To give text while ids arrive they work as streams; Decode is a stream that is closed at once.
type decoder interface {
	// stream returns what takes the tokens, and gives its own to next.
	stream(next sink) sink
}

// sink takes tokens in parts. A part is UTF-8 if all before it are.
type sink interface {
	// write takes a part of the current token, which ends with it if last is set.
	write(part string, last bool)
	// close says that no token follows; the last one has ended.
	close()
}

// decoders are the types of the key "decoder".
var decoders components[decoder]

func init() {
	decoders = components[decoder]{"decoder", map[string]func(json.RawMessage, int) (decoder, error){
		"BPEDecoder":   readBPEDecoder,
		"ByteFallback": constant[decoder]("decoder", "ByteFallback", decoderFunc(newByteRun)),
		"ByteLevel":    readByteLevelDecoder,
		"CTC":          readCTC,
		"Fuse":         constant[decoder]("decoder", "Fuse", decoderFunc(func(next sink) sink { return fuseStream{next} })),
		"Metaspace":    readMetaspaceDecoder,
		"Replace":      readReplaceDecoder,
		"Sequence":     readDecoderSequence,
		"Strip":        readStripDecoder,
		"WordPiece":    readWordPieceDecoder,
	}}
}

// decoderSequence is the decoder Sequence.
type decoderSequence []decoder

func readDecoderSequence(raw json.RawMessage, depth int) (decoder, error) {
	list, err := decoders.sequence("decoders", raw, depth)
	if err != nil {
		return nil, err
	}
	return newDecoderSequence(list)
}

// newDecoderSequence refuses what takes too much memory or time, by the bounds of normalizers.
func newDecoderSequence(list []decoder) (decoder, error) {
	const kind = `decoder "Sequence"`
	var l decoderSequence
	for _, d := range list {
		if inner, ok := d.(decoderSequence); ok {
			l = append(l, inner...)
		} else {
			l = append(l, d)
		}
	}
	if len(l) > maxSteps {
		return nil, unsupported(kind, fmt.Sprintf("of %d decoders", len(l)))
	}
	total := 1
	for _, d := range l {
		if g, ok := d.(grower); ok {
			total = min(total*g.growth(), maxGrowth+1)
		}
	}
	if total > maxGrowth {
		return nil, unsupported(kind, fmt.Sprintf("that makes more than %d bytes of one", maxGrowth))
	}
	return l, nil
}

// grower is a decoder that makes more bytes of a token than it has.
type grower interface {
	// growth is a bound of the bytes that come of one, and of those of an empty token.
	growth() int
}

// growing is a decoder with its growth.
type growing struct {
	decoder
	factor int
}

func (g growing) growth() int { return g.factor }

func (l decoderSequence) stream(next sink) sink {
	for i := len(l) - 1; i >= 0; i-- {
		next = l[i].stream(next)
	}
	return next
}

// decoderFunc is a decoder that is one function.
type decoderFunc func(next sink) sink

func (f decoderFunc) stream(next sink) sink { return f(next) }

// wholeTokens is a sink for decoders that need the whole of a token.
type wholeTokens struct {
	token func(string)
	end   func()
	parts strings.Builder
	open  bool
}

func (w *wholeTokens) write(part string, last bool) {
	switch {
	case !last:
		w.parts.WriteString(part)
		w.open = true
	case !w.open:
		w.token(part)
	default:
		w.parts.WriteString(part)
		token := w.parts.String()
		w.parts.Reset()
		w.open = false
		w.token(token)
	}
}

func (w *wholeTokens) close() { w.end() }

// mapTokens is a decoder that changes each token by itself. The function may count them.
func mapTokens(start func() func(token string) string) decoder {
	return decoderFunc(func(next sink) sink {
		change := start()
		return &wholeTokens{token: func(token string) { next.write(change(token), true) }, end: next.close}
	})
}

// spaced is what the library does without a decoder: it joins tokens with spaces.
var spaced = decoderFunc(func(next sink) sink { return &spacedStream{next: next, between: ""} })

type spacedStream struct {
	next    sink
	between string
}

func (s *spacedStream) write(part string, last bool) {
	s.next.write(s.between+part, last)
	s.between = " "
}

func (s *spacedStream) close() { s.next.close() }
