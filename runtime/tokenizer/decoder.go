package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// decoder converts tokens, as the vocabulary spells them, to text. Each passes its tokens to the next one, and those of the
// last are joined. Decoders are streams, which return text while ids arrive; Decode closes its stream at once.
type decoder interface {
	// stream returns a sink for the tokens, which passes its own to next.
	stream(next sink) sink
}

// sink takes tokens in parts. A part is UTF-8 if all before it are.
type sink interface {
	// write takes a part of the current token, which ends with it if last is set.
	write(part string, last bool)
	// close ends the stream; the last token has ended.
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

// newDecoderSequence rejects sequences that take too much memory or time, by the bounds of normalizers.
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

// grower is a decoder whose tokens may be longer than those that it takes.
type grower interface {
	// growth bounds the bytes for each byte, and those for an empty token.
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

// spaced joins tokens with spaces, as the library does without a decoder.
var spaced = decoderFunc(func(next sink) sink { return &spacedStream{sink: next, between: ""} })

type spacedStream struct {
	sink    // the next one
	between string
}

func (s *spacedStream) write(part string, last bool) {
	s.sink.write(s.between+part, last)
	s.between = " "
}
