package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-openapi/runtime"
	httptransport "github.com/go-openapi/runtime/client"
	"github.com/go-openapi/strfmt"
	"github.com/sigstore/rekor/pkg/generated/client"
	"github.com/sigstore/rekor/pkg/generated/client/entries"
	"github.com/sigstore/rekor/pkg/generated/models"
	"github.com/sigstore/sigstore-go/pkg/sign"
)

// rekor is the client of a transparency log. It validates responses, because sigstore-go v1.3.0 panics on missing
// fields.
type rekor struct {
	entries entries.ClientService
}

// newRekor makes a client with our transport; the default one reads responses of any length.
func newRekor(base string) (sign.RekorClient, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	t := httptransport.NewWithClient(u.Host, cmp.Or(u.Path, client.DefaultBasePath), []string{u.Scheme}, &http.Client{Transport: confined{}, Timeout: patience})
	t.Consumers[runtime.JSONMime] = runtime.JSONConsumer()
	t.Producers[runtime.JSONMime] = runtime.JSONProducer()
	return rekor{client.New(t, strfmt.Default).Entries}, nil
}

func (r rekor) CreateLogEntry(p *entries.CreateLogEntryParams, o ...entries.ClientOption) (*entries.CreateLogEntryCreated, error) {
	answer, err := r.entries.CreateLogEntry(p, o...)
	if err != nil {
		return nil, err
	}
	e, ok := answer.Payload[answer.ETag]
	if !ok {
		return nil, errors.New("the transparency log returned no entry")
	}
	return answer, checkEntry(e)
}

func (r rekor) GetLogEntryByUUID(p *entries.GetLogEntryByUUIDParams, o ...entries.ClientOption) (*entries.GetLogEntryByUUIDOK, error) {
	answer, err := r.entries.GetLogEntryByUUID(p, o...)
	if err != nil {
		return nil, err
	}
	if len(answer.Payload) != 1 {
		return nil, fmt.Errorf("the transparency log returned %d entries instead of one", len(answer.Payload))
	}
	for _, e := range answer.Payload {
		err = checkEntry(e)
	}
	return answer, err
}

// checkEntry requires the fields of an entry. The validation of the client is too strict: it rejects a log of one
// entry, whose proof needs no hashes.
func checkEntry(e models.LogEntryAnon) error {
	v := e.Verification
	if e.LogID == nil || e.LogIndex == nil || e.IntegratedTime == nil || v == nil || v.InclusionProof == nil {
		return errors.New("the transparency log returned no inclusion proof")
	}
	if p := v.InclusionProof; p.RootHash == nil || p.LogIndex == nil || p.TreeSize == nil || p.Checkpoint == nil {
		return errors.New("the transparency log returned an incomplete inclusion proof")
	}
	return nil
}
