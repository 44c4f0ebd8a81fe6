package fakeadb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Messages of the protocol between the server of adb and a device: six words, then data. The documents protocol.txt and
// SYNC.TXT of Android's packages/modules/adb describe it.
const (
	cnxn = 0x4e584e43
	auth = 0x48545541
	open = 0x4e45504f
	okay = 0x59414b4f
	clse = 0x45534c43
	wrte = 0x45545257

	protocolVersion = 0x01000001 // without checksums
	maxData         = 256 << 10
	// banner has the features that the real adb looks at: exit codes of shells.
	banner = "device::ro.product.name=fake;ro.product.model=Fake;ro.product.device=fake;features=shell_v2,cmd"
)

// Serve is the daemon of Android on this computer, for the real adb, which reaches it with adb connect. It serves connections
// until the listener is closed. The files faults, props and runner of the state have their meaning; besides, the line "daemon
// unauthorized" of faults makes it refuse every key, as a device does until its user agrees.
func Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			d := &daemon{conn: c, streams: map[uint32]*stream{}}
			d.serve()
			for _, s := range d.streams {
				s.end()
			}
		}()
	}
}

// daemon is a connection.
type daemon struct {
	conn    net.Conn
	write   sync.Mutex
	mu      sync.Mutex
	streams map[uint32]*stream // by our id
	last    uint32
}

// stream is a service that the other side has opened.
type stream struct {
	d            *daemon
	ours, theirs uint32
	in           *io.PipeReader
	feed         *io.PipeWriter
	ready        chan struct{} // holds an element when data may be sent
	gone         chan struct{}
	once         sync.Once
}

func (s *stream) end() {
	s.once.Do(func() {
		close(s.gone)
		s.feed.Close()
	})
}

func (d *daemon) send(command, a, b uint32, data []byte) error {
	head := make([]byte, 24, 24+len(data))
	for i, v := range []uint32{command, a, b, uint32(len(data)), 0, ^command} {
		binary.LittleEndian.PutUint32(head[4*i:], v)
	}
	d.write.Lock()
	defer d.write.Unlock()
	_, err := d.conn.Write(append(head, data...))
	return err
}

// serve reads messages until the connection ends.
func (d *daemon) serve() {
	r := bufio.NewReader(d.conn)
	for {
		var m [6]uint32
		if binary.Read(r, binary.LittleEndian, &m) != nil || m[5] != ^m[0] || m[3] > maxData<<2 {
			return
		}
		data := make([]byte, m[3])
		if _, err := io.ReadFull(r, data); err != nil {
			return
		}
		if err := d.handle(m[0], m[1], m[2], data); err != nil {
			return
		}
	}
}

func (d *daemon) handle(command, a, b uint32, data []byte) error {
	d.mu.Lock()
	s := d.streams[b]
	d.mu.Unlock()
	switch {
	case command == auth, command == cnxn && fault("daemon") == "unauthorized":
		return d.send(auth, 1, 0, make([]byte, 20))
	case command == cnxn:
		return d.send(cnxn, protocolVersion, maxData, []byte(banner))
	case command == open:
		return d.open(a, strings.TrimRight(string(data), "\x00"))
	case s == nil:
	case command == okay:
		select {
		case s.ready <- struct{}{}:
		default:
		}
	case command == wrte:
		if _, err := s.feed.Write(data); err == nil {
			return d.send(okay, s.ours, s.theirs, nil)
		}
	case command == clse:
		s.end()
	}
	return nil
}

func (d *daemon) open(theirs uint32, service string) error {
	d.mu.Lock()
	d.last++
	s := &stream{d: d, ours: d.last, theirs: theirs, ready: make(chan struct{}, 1), gone: make(chan struct{})}
	s.in, s.feed = io.Pipe()
	s.ready <- struct{}{}
	d.streams[s.ours] = s
	d.mu.Unlock()
	kind, script, _ := strings.Cut(service, ":")
	var run func()
	switch {
	case kind == "sync":
		run = s.sync
	case strings.HasPrefix(kind, "shell,v2"):
		run = func() { s.shell(script) }
	default:
		return d.send(clse, 0, theirs, nil)
	}
	if err := d.send(okay, s.ours, theirs, nil); err != nil {
		return err
	}
	go func() {
		run()
		_ = d.send(clse, s.ours, s.theirs, nil)
		s.end()
	}()
	return nil
}

// Write sends data in pieces, each of which the other side acknowledges.
func (s *stream) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		select {
		case <-s.ready:
		case <-s.gone:
			return n, io.ErrClosedPipe
		}
		piece := b[n:min(len(b), n+maxData)]
		if err := s.d.send(wrte, s.ours, s.theirs, piece); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return len(b), nil
}

// packets writes the packets of a shell: an identifier, a length, data.
type packets struct {
	s  *stream
	id byte
}

func (p packets) Write(b []byte) (int, error) {
	head := binary.LittleEndian.AppendUint32([]byte{p.id}, uint32(len(b)))
	if _, err := p.s.Write(append(head, b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// shell runs a script. Standard input, which adb sends, is dropped.
func (s *stream) shell(script string) {
	const stdout, stderr, exit = 1, 2, 3
	go func() { _, _ = io.Copy(io.Discard, s.in) }()
	code := shell(script, packets{s, stdout}, packets{s, stderr})
	if fault("shell") != "closed" {
		_, _ = packets{s, exit}.Write([]byte{byte(code)})
	}
}

// sync serves requests for files: an identifier of four letters, a length, and a path.
func (s *stream) sync() {
	for {
		id, path, err := s.request()
		if err != nil || id == "QUIT" {
			return
		}
		switch id {
		case "STAT":
			_, err = s.Write(append([]byte("STAT"), stat(path)...))
		case "LIST":
			err = s.list(path)
		case "SEND":
			err = s.receive(path)
		case "RECV":
			err = s.transmit(path)
		default:
			err = s.fail("unknown command " + id)
		}
		if err != nil {
			return
		}
	}
}

func (s *stream) request() (id, data string, err error) {
	var head [8]byte
	if _, err = io.ReadFull(s.in, head[:]); err != nil {
		return
	}
	id = string(head[:4])
	if id == "DONE" { // its number is a time
		return
	}
	b := make([]byte, min(binary.LittleEndian.Uint32(head[4:]), maxData))
	_, err = io.ReadFull(s.in, b)
	return id, string(b), err
}

func (s *stream) answer(id string, n int, data string) error {
	_, err := s.Write(append(binary.LittleEndian.AppendUint32([]byte(id), uint32(n)), data...))
	return err
}

func (s *stream) fail(reason string) error { return s.answer("FAIL", len(reason), reason) }

// stat is the mode, size and time of a file, all 0 if there is none.
func stat(path string) []byte {
	const regular, directory = 0o100000, 0o040000
	var mode, size, at uint32
	if st, err := os.Stat(path); err == nil {
		mode, size, at = regular|uint32(st.Mode().Perm()), uint32(st.Size()), uint32(st.ModTime().Unix())
		if st.IsDir() {
			mode = directory | uint32(st.Mode().Perm())
		}
	}
	var b []byte
	for _, v := range []uint32{mode, size, at} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func (s *stream) list(dir string) error {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		b := append([]byte("DENT"), stat(filepath.Join(dir, e.Name()))...)
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(e.Name()))), e.Name()...)
		if _, err := s.Write(b); err != nil {
			return err
		}
	}
	_, err := s.Write(append([]byte("DONE"), make([]byte, 16)...))
	return err
}

// receive stores a file; spec is its path, a comma, and its mode.
func (s *stream) receive(spec string) error {
	at := strings.LastIndexByte(spec, ',')
	if at < 0 {
		return s.fail("missing mode")
	}
	mode, _ := strconv.Atoi(spec[at+1:])
	var content []byte
	for {
		id, data, err := s.request()
		if err != nil {
			return err
		}
		if id == "DONE" {
			break
		}
		content = append(content, data...)
	}
	path := spec[:at]
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return s.fail(fmt.Sprintf("secure_mkdirs failed: %v", errors.Unwrap(err)))
	}
	switch fault("push") {
	case "full":
		_ = os.WriteFile(path, content[:len(content)/2], 0o644)
		return s.fail("write failed: No space left on device")
	case "flip":
		if len(content) > 0 {
			content[len(content)/2] ^= 1
		}
	}
	if err := os.WriteFile(path, content, os.FileMode(mode)&os.ModePerm); err != nil {
		return s.fail(fmt.Sprintf("couldn't create file: %v", errors.Unwrap(err)))
	}
	return s.answer("OKAY", 0, "")
}

func (s *stream) transmit(path string) error {
	const piece = 64 << 10
	b, err := os.ReadFile(path)
	if err != nil {
		return s.fail(fmt.Sprintf("open failed: %v", errors.Unwrap(err)))
	}
	for len(b) > 0 {
		n := min(piece, len(b))
		if err := s.answer("DATA", n, string(b[:n])); err != nil {
			return err
		}
		b = b[n:]
	}
	return s.answer("DONE", 0, "")
}
