// Package fakehub is a model hub for tests: it implements the protocols of Hugging Face and ModelScope over
// repositories in memory or on disk, with faults on demand and counters of requests and bytes.
//
// Begin with New, add repositories with Hub.Repo and Repo.Commit, and start both servers with Hub.Start or, without a
// test, Hub.Listen. As in reality, hub and storage are two servers: storage serves large files to clients with a signed
// address, and rejects requests with a token.
//
// Responses follow the source of huggingface_hub 2.4.0 and the responses of huggingface.co. There is no Xet: no
// response contains a Xet hash, so that client downloads by plain HTTP, and uploads need HF_HUB_DISABLE_XET=1, because
// with hf_xet installed it uploads by Xet without asking the hub.
package fakehub
