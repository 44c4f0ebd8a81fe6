// Package fakehub is a hub of models for tests: Hugging Face's and ModelScope's protocols over repositories that are
// held in memory or lie on the disk, with faults on demand and counters of what was asked and sent.
//
// Begin with New, add repositories by Hub.Repo and Repo.Commit, and start both servers by Hub.Start or, without a test,
// Hub.Listen. As in reality, hub and storage are two servers: storage serves large files to whoever has a signed
// address, and refuses a request that carries a token.
//
// Answers follow what huggingface_hub 2.4.0 asks for and reads, as its sources and the answers of huggingface.co show.
// There is no Xet: no answer names a Xet hash, so that client downloads by plain HTTP, and uploads need
// HF_HUB_DISABLE_XET=1, as with hf_xet installed it uploads by Xet without asking the hub.
package fakehub
