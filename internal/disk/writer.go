// Package disk writes large files, and checks free space.
package disk

import "os"

// begin is the number of bytes after which the disk starts writing: enough for it to work efficiently, few enough that
// little is left to sync at the end.
const begin = 8 << 20

// Writer writes to a file and makes the disk start early, so that File.Sync after the last byte is short.
type Writer struct {
	File  *os.File
	begun int64 // offset up to which the disk has started
	at    int64
}

// NewWriter returns a writer that continues at offset at of f, which is the offset of f.
func NewWriter(f *os.File, at int64) *Writer { return &Writer{File: f, begun: at, at: at} }

// Seek implements io.Seeker. The disk starts writing the preceding bytes.
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
