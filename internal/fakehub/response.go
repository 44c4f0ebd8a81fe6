package fakehub

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// The two servers.
const (
	onHub = iota
	onStorage
)

var sides = [2]string{"hub", "storage"}

// piece is the size of the pieces of a file passed to the kernel, in bytes; counters are updated after each.
const piece = 4 << 20

var errDropped = errors.New("the connection was dropped on purpose")

// response counts sent bytes and applies a rule. It is an io.ReaderFrom, so that files are still sent with sendfile.
type response struct {
	http.ResponseWriter
	r     *http.Request
	h     *Hub
	fault *Rule

	record  *record
	count   *atomic.Int64 // bytes of the file, over all requests
	status  int
	start   int64 // where in the file the body begins, in bytes
	left    int64 // for Short: the total number of bytes to send
	sent    int64 // bytes of the body
	dropped bool
}

func (w *response) WriteHeader(status int) {
	if w.status != 0 || w.dropped {
		return
	}
	w.status = status
	if w.fault != nil && w.fault.Fault == Lost {
		return
	}
	w.shape(status)
	w.record.status.Store(int64(status))
	w.ResponseWriter.WriteHeader(status)
	if f := w.fault; f != nil && f.Fault == Stall && f.After == 0 {
		w.flush()
		w.wait(0)
		w.drop(false)
	}
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.dropped:
		return 0, errDropped
	case w.fault == nil:
		return w.send(b)
	case w.fault.Fault == Lost:
		return len(b), nil
	}
	return w.body(b)
}

// ReadFrom uses sendfile unless a rule needs the bytes.
func (w *response) ReadFrom(src io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	rf, ok := w.ResponseWriter.(io.ReaderFrom)
	limited, isLimited := src.(*io.LimitedReader)
	if !ok || !isLimited || w.fault != nil {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	file, isFile := limited.R.(*os.File)
	if !isFile {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	var total int64
	for limited.N > 0 {
		next := min(piece, limited.N)
		w.add(next)
		n, err := rf.ReadFrom(&io.LimitedReader{R: file, N: next})
		w.add(n - next)
		total += n
		limited.N -= n
		if err != nil || n == 0 {
			return total, err
		}
	}
	return total, nil
}

// send sends bytes unchanged.
func (w *response) send(b []byte) (int, error) {
	if w.dropped {
		return 0, errDropped
	}
	w.add(int64(len(b)))
	n, err := w.ResponseWriter.Write(b)
	w.add(int64(n - len(b)))
	return n, err
}

// add counts bytes before they are sent, so that a client that has received them finds them counted.
func (w *response) add(n int64) {
	w.sent += n
	w.record.sent.Add(n)
	w.count.Add(n)
}

func (w *response) flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// wait waits for a time, or forever if it is 0. It returns false if client or server end first.
func (w *response) wait(d time.Duration) bool {
	var end <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		end = t.C
	}
	select {
	case <-end:
		return true
	case <-w.r.Context().Done():
	case <-w.h.done:
	}
	return false
}

// drop closes the connection after the bytes sent so far, with a reset or without. Only rules do so.
func (w *response) drop(reset bool) {
	if w.dropped {
		return
	}
	w.dropped = true
	if w.status != 0 && w.fault.Fault != Lost {
		w.flush() // Hijack discards unsent bytes
	}
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return
	}
	_ = buffered.Flush()
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
