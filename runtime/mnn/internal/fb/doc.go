// Package fb is the FlatBuffers code generated from mnn.fbs. It trusts its buffer: package mnn verifies one
// before it hands it over.
package fb

//go:generate flatc --go --gen-onefile --no-warnings --go-namespace fb -o . ../../mnn.fbs
//go:generate gofmt -w mnn_generated.go
