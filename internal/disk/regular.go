package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/fault"
)

// Kind names the type of a file that is not regular.
func Kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a file"
	case m.IsDir():
		return "a directory"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// KindError is the error for a path that is not a regular file or a directory.
type KindError struct {
	Path string
	Kind string // its type, see [Kind]
	Want string // "file" or "directory"
}

func (e *KindError) Error() string {
	return fmt.Sprintf("%s is %s, not a plain %s: remove it", e.Path, e.Kind, e.Want)
}

// Name returns err with the whole path of the file below root.
func Name(root *os.Root, err error) error {
	if p, ok := err.(*fs.PathError); ok && !filepath.IsAbs(p.Path) {
		return &fs.PathError{Op: p.Op, Path: filepath.Join(root.Name(), p.Path), Err: p.Err}
	}
	return err
}

// CheckRegular returns a [KindError] unless the file is regular.
func CheckRegular(path string, m fs.FileMode) error {
	if m.IsRegular() {
		return nil
	}
	return &KindError{path, Kind(m), "file"}
}

// Open opens a file for reading, following links. Anything but a regular file, which could block or never end, is a
// [KindError].
func Open(path string) (*os.File, error) {
	st, err := os.Stat(path) // first: opening a device may have side effects
	if err != nil {
		return nil, err
	}
	if err := CheckRegular(path, st.Mode()); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|Nonblock, 0)
	if err != nil {
		return nil, err
	}
	if st, err = f.Stat(); err == nil {
		err = CheckRegular(path, st.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadFile reads a file of at most limit bytes, opened by [Open]. A longer one is fault.ErrCorrupt.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return readAll(f, path, limit)
}

func readAll(f *os.File, path string, limit int64) ([]byte, error) {
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, min(st.Size(), limit)+bytes.MinRead))
	if st.Size() <= limit {
		_, err = b.ReadFrom(io.LimitReader(f, limit+1)) // the file may grow
	}
	if err != nil {
		return nil, err
	}
	if n := max(st.Size(), int64(b.Len())); n > limit {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d: %w", path, n, limit, fault.ErrCorrupt)
	}
	return b.Bytes(), nil
}

// OpenIn opens a file below a directory that others may write to. A link, or anything but a regular file, is a
// [KindError]. A file that is opened for writing and has other names, possibly outside the directory, is replaced by a
// new file. Flag must not contain O_TRUNC.
func OpenIn(root *os.Root, name string, flag int, perm fs.FileMode) (*os.File, error) {
	path := filepath.Join(root.Name(), name)
	for range 10 { // others may create or remove the file at the same time
		was, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
			f, err := root.OpenFile(name, flag|os.O_EXCL|Nonblock, perm)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			return f, Name(root, err)
		}
		if err == nil {
			err = CheckRegular(path, was.Mode())
		}
		if err != nil {
			return nil, Name(root, err)
		}
		f, err := root.OpenFile(name, flag&^os.O_CREATE|Nonblock, 0)
		if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
			continue
		}
		if err != nil {
			return nil, Name(root, err)
		}
		st, err := f.Stat()
		switch {
		case err != nil:
			return nil, errors.Join(err, f.Close())
		case !os.SameFile(was, st):
			f.Close()
			continue
		case flag&(os.O_WRONLY|os.O_RDWR) != 0 && names(st) > 1:
			if err := errors.Join(f.Close(), root.Remove(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		return f, nil
	}
	return nil, fmt.Errorf("%s changed while it was being opened", path)
}

// ReadIn reads a file of at most limit bytes, opened by [OpenIn].
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := OpenIn(root, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return readAll(f, filepath.Join(root.Name(), name), limit)
}

// MakeDirIn makes a directory below root, and its parents, none of which may be a link.
func MakeDirIn(root *os.Root, name string) error {
	if name == "." {
		return nil
	}
	if err := MakeDirIn(root, filepath.Dir(name)); err != nil {
		return err
	}
	err := root.Mkdir(name, 0o777)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return Name(root, err)
	}
	st, err := root.Lstat(name)
	if err == nil && !st.IsDir() {
		err = &KindError{filepath.Join(root.Name(), name), Kind(st.Mode()), "directory"}
	}
	return Name(root, err)
}
