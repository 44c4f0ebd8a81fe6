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

// piece is how much of a file is handed to the kernel at a time, in bytes: counters move between pieces.
const piece = 4 << 20

var errDropped = errors.New("the connection was dropped on purpose")

// response counts what is sent and does to it what a rule wants. It is an io.ReaderFrom, so that files still leave by
// sendfile.
type response struct {
	http.ResponseWriter
	r     *http.Request
	h     *Hub
	fault *Rule

	record  *record
	count   *atomic.Int64 // of the file, for all requests
	status  int
	start   int64 // where in the file the body begins, in bytes
	left    int64 // for Short: the bytes to send at all
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

// ReadFrom sends a file by sendfile if no rule wants to see its bytes.
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

// send sends bytes as they are.
func (w *response) send(b []byte) (int, error) {
	if w.dropped {
		return 0, errDropped
	}
	w.add(int64(len(b)))
	n, err := w.ResponseWriter.Write(b)
	w.add(int64(n - len(b)))
	return n, err
}

// add counts bytes, before they are sent: a client that has them finds them counted.
func (w *response) add(n int64) {
	w.sent += n
	w.record.sent.Add(n)
	w.count.Add(n)
}

func (w *response) flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// wait waits for a time, or without one for ever. It is false if client or server end before.
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

// drop closes the connection behind what was sent so far, with a reset or without. Only rules do so.
func (w *response) drop(reset bool) {
	if w.dropped {
		return
	}
	w.dropped = true
	if w.status != 0 && w.fault.Fault != Lost {
		w.flush() // Hijack loses what the server has not sent yet
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
