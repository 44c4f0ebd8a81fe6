package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// UnreachableError means that no server of a hub could be reached, and that the cache cannot take its place.
type UnreachableError struct {
	Err   error // of the last server
	Cache error // what the cache lacks; wraps fs.ErrNotExist
}

func (e *UnreachableError) Error() string {
	cache := "the cache cannot be used"
	if e.Cache != nil {
		cache = strings.TrimSuffix(e.Cache.Error(), onlineAdvice)
	}
	return fmt.Sprintf("cannot reach the hub (%s), and %s", reason(e.Err), cache)
}

func (e *UnreachableError) Unwrap() []error { return []error{e.Err, e.Cache} }

// reason returns the host and the innermost cause of a failed connection, or the whole text of any other error.
func reason(err error) string {
	var (
		name *net.DNSError
		op   *net.OpError
		get  *url.Error
	)
	switch {
	case errors.As(err, &name):
		return name.Name + ": " + name.Err
	case errors.As(err, &op) && op.Addr != nil:
		return op.Addr.String() + ": " + innermost(op.Err)
	case errors.As(err, &op):
		return innermost(op.Err)
	case errors.As(err, &get):
		return get.Err.Error()
	}
	return err.Error()
}

// innermost is the text of the error of a system call, without the name of the call.
func innermost(err error) string {
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		err = call.Err
	}
	return err.Error()
}

// onlineAdvice ends the text of what the cache lacks while no request is allowed.
const onlineAdvice = ": fetch it once while online"

// absentError is fs.ErrNotExist with a text of its own.
type absentError string

func (e absentError) Error() string        { return string(e) }
func (e absentError) Is(target error) bool { return target == fs.ErrNotExist }

// noCheckpoint is the error for a directory without any file of a checkpoint.
func noCheckpoint(dir string) error {
	list, _ := os.ReadDir(dir)
	if slices.ContainsFunc(list, func(e fs.DirEntry) bool { return strings.EqualFold(filepath.Ext(e.Name()), ".gguf") }) {
		return absentError(dir + " contains GGUF files, which cannot be read; name the original checkpoint")
	}
	return absentError(dir + " contains no checkpoint, which needs config.json, *.safetensors and a tokenizer")
}
