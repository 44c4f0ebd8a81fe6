package main

import (
	"io"
	"net/http"
	"sync/atomic"
)

// meter counts the bytes of response bodies.
type meter struct{ read atomic.Int64 }

// client returns a client that counts into m and otherwise works as http.DefaultClient.
func (m *meter) client() *http.Client { return &http.Client{Transport: m} }

func (m *meter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Body = &metered{resp.Body, m}
	}
	return resp, err
}

type metered struct {
	io.ReadCloser
	m *meter
}

func (b *metered) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.m.read.Add(int64(n))
	return n, err
}
