package transfer

import (
	"cmp"
	"fmt"
	"io/fs"
)

// StatusError is an unsuccessful response. It is fs.ErrPermission if access was denied and fs.ErrNotExist if nothing was found.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// Who names the server, for the message; empty is "the server".
	Who string
	// Code is the server's error code, such as "GatedRepo", "DENIED" or "AccessDenied"; may be empty.
	Code string
	// Message is the server's own message, passed through [Said]; may be empty.
	Message string
	// Hint tells the user what to do; may be empty.
	Hint string
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("%s answers %d", cmp.Or(e.Who, "the server"), e.Status)
	if e.Code != "" {
		s += " " + e.Code
	}
	if e.Message != "" {
		s += " (" + e.Message + ")"
	}
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

// Is makes a StatusError match fs.ErrPermission and fs.ErrNotExist.
func (e *StatusError) Is(target error) bool {
	switch e.Status {
	case 401, 403, 451:
		return target == fs.ErrPermission
	case 404, 410:
		return target == fs.ErrNotExist
	}
	return false
}
