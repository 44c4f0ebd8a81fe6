package tokenizer

import "encoding/json"

// fuseStream is the decoder Fuse: all tokens become one.
type fuseStream struct{ next sink }

func readFuse(raw json.RawMessage, _ int) (decoder, error) {
	return decoderFunc(func(next sink) sink { return fuseStream{next} }), noSettings("Fuse", raw)
}

func (f fuseStream) write(part string, _ bool) { f.next.write(part, false) }

func (f fuseStream) close() {
	f.next.write("", true)
	f.next.close()
}
