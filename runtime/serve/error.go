package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// apiError is an error in the form of OpenAI's interface.
type apiError struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
	// retry, if not 0, tells the client when to try again.
	retry time.Duration
}

func (e *apiError) Error() string { return e.Message }

// badf is a request that cannot be carried out as it is; param names the field, if it is one.
func badf(param, format string, args ...any) *apiError {
	e := &apiError{status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: "invalid_request_error"}
	if param != "" {
		e.Param = &param
	}
	return e
}

// failf is an error of another status.
func failf(status int, kind, code, format string, args ...any) *apiError {
	e := &apiError{status: status, Message: fmt.Sprintf(format, args...), Type: kind}
	if code != "" {
		e.Code = &code
	}
	return e
}

var (
	errTimeout  = errors.New("the time limit of a request is over")
	errShutdown = errors.New("the server is shutting down")
	errGone     = errors.New("the client went away")
)

// asAPI returns what a client is told of an error.
func asAPI(ctx context.Context, err error) *apiError {
	var e *apiError
	var large *http.MaxBytesError
	switch cause := context.Cause(ctx); {
	case errors.As(err, &e):
		return e
	case errors.As(err, &large):
		return failf(http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large", "the request has more than %d bytes", large.Limit)
	case errors.Is(cause, errTimeout):
		return failf(http.StatusGatewayTimeout, "timeout_error", "timeout", "%v", errTimeout)
	case errors.Is(cause, errShutdown):
		return failf(http.StatusServiceUnavailable, "server_error", "shutting_down", "%v", errShutdown)
	case cause != nil:
		return failf(499, "server_error", "client_closed_request", "%v", errGone) // nobody reads it; the number is that of nginx
	}
	return failf(http.StatusInternalServerError, "server_error", "internal_error", "%v", err)
}

// body is the document of an error.
func (e *apiError) body() []byte {
	b, err := json.Marshal(struct {
		Error *apiError `json:"error"`
	}{e})
	if err != nil {
		panic("internal error: " + err.Error()) // texts only
	}
	return b
}

// write answers with the error.
func (e *apiError) write(w http.ResponseWriter) {
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(e.retry/time.Second)))
	}
	if e.status == http.StatusGatewayTimeout {
		w.Header().Set("X-Should-Retry", "false") // the clients of OpenAI would compute it all again
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_, _ = w.Write(append(e.body(), '\n'))
}
