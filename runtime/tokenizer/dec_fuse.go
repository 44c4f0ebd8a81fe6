package tokenizer

// fuseStream is the decoder Fuse: all tokens become one.
type fuseStream struct{ next sink }

func (f fuseStream) write(part string, _ bool) { f.next.write(part, false) }

func (f fuseStream) close() {
	f.next.write("", true)
	f.next.close()
}
