// Package disk writes large files, and says whether there is room for them.
package disk

import "os"

// begin is how many bytes are written before the disk is told to begin with them: enough for it to work at its best,
// few enough that little is left when the file has to be durable.
const begin = 8 << 20

// Writer writes to a file and lets the disk begin early, so that File.Sync behind the last byte is short.
type Writer struct {
	File  *os.File
	begun int64 // offset up to which the disk has begun
	at    int64
}

// NewWriter returns a writer that goes on at offset at of f, where f stands.
func NewWriter(f *os.File, at int64) *Writer { return &Writer{File: f, begun: at, at: at} }

// Seek implements io.Seeker. The disk begins with what was written before.
func (w *Writer) Seek(offset int64, whence int) (int64, error) {
	at, err := w.File.Seek(offset, whence)
	if err == nil && at != w.at {
		Begin(w.File, w.begun, w.at-w.begun)
		w.begun, w.at = at, at
	}
	return at, err
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	n, err := w.File.Write(b)
	w.at += int64(n)
	if w.at-w.begun >= begin {
		Begin(w.File, w.begun, w.at-w.begun)
		w.begun = w.at
	}
	return n, err
}
