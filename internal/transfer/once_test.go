package transfer

import (
	"context"
	"errors"
	"testing"
)

func TestOnce(t *testing.T) {
	t.Parallel()
	gone, tries := errors.New("gone"), 0
	err := Retry(Once(t.Context()), "ask", Options{}, func(context.Context, func(int)) (bool, error) {
		tries++
		return false, &Retryable{Err: gone}
	})
	if tries != 1 || !errors.Is(err, gone) {
		t.Errorf("%d tries, %v", tries, err)
	}
}
