package hubs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxModelScopeFiles is the length at which ModelScope silently truncates its list of files.
const maxModelScopeFiles = 3000

// modelScopeCodes are the error codes of ModelScope for a name that is taken, on its two sites.
var modelScopeCodes = map[int64]bool{10010101001: true, 10010202004: true}

// parseModelScope unwraps a response: it returns its Data, or an error. ModelScope reports some errors with status 200;
// without a Code, the HTTP status counts.
func parseModelScope(status int, b []byte) (json.RawMessage, error) {
	var a struct {
		Code    int64
		Success *bool
		Message string
		Data    json.RawMessage
	}
	err := jsondoc.Decode(b, &a)
	switch {
	case status/100 != 2 || err == nil && (a.Success != nil && !*a.Success || a.Code >= 400):
		if modelScopeCodes[a.Code] {
			status = http.StatusConflict
		} else if status/100 == 2 {
			status = http.StatusBadRequest
			if a.Code >= 400 && a.Code < 600 {
				status = int(a.Code)
			}
		}
		return nil, &transfer.StatusError{Status: status, Who: "ModelScope", Message: transfer.Said(a.Message), Hint: modelScopeHint(status)}
	case err != nil:
		return nil, corruptAnswer("the repository", err)
	}
	return a.Data, nil
}

func modelScopeHint(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "the token is missing or invalid: set MODELSCOPE_API_TOKEN"
	case http.StatusForbidden:
		return "the token's account is not allowed to do this"
	case http.StatusNotFound:
		return "the repository, branch or file does not exist, or the token's account cannot access it"
	}
	return ""
}

// modelScopeFiles are the files of one revision.
type modelScopeFiles struct {
	// commit stands for the revision: the one that ModelScope reports, or else the one that changed the newest file.
	commit string
	named  bool
	files  map[string]repoFile
	inGit  map[string]bool // files whose content is in git
}

// parseModelScopeFiles parses the Data of a listing. The names are only compared, and never used as paths of this
// machine.
func parseModelScopeFiles(data []byte) (modelScopeFiles, error) {
	var a struct {
		Files []struct {
			Path, Type, Sha256, Revision string
			Size                         int64
			IsLFS                        bool
			CommittedDate                int64 // seconds
		}
		LatestCommitter struct{ Id string }
	}
	if err := jsondoc.Decode(data, &a); err != nil {
		return modelScopeFiles{}, corruptAnswer("the files", err)
	}
	if len(a.Files) >= maxModelScopeFiles {
		return modelScopeFiles{}, fmt.Errorf("ModelScope lists only the first %d files of a repository, and this one has as many: %w",
			maxModelScopeFiles, tensor.ErrUnsupported)
	}
	l := modelScopeFiles{files: map[string]repoFile{}, inGit: map[string]bool{}}
	newest := int64(-1)
	for _, f := range a.Files {
		if gitID.MatchString(f.Revision) && f.CommittedDate > newest {
			l.commit, newest = f.Revision, f.CommittedDate
		}
		if f.Type == "tree" {
			continue
		}
		sum := strings.ToLower(f.Sha256)
		if f.Path == "" || f.Size < 0 || !digest.IsHex(sum) {
			return modelScopeFiles{}, fmt.Errorf("ModelScope lists %.200q with an invalid size or digest: %w", f.Path, tensor.ErrCorrupt)
		}
		if _, twice := l.files[f.Path]; twice {
			return modelScopeFiles{}, fmt.Errorf("ModelScope lists %.200q twice: %w", f.Path, tensor.ErrCorrupt)
		}
		l.files[f.Path], l.inGit[f.Path] = repoFile{size: f.Size, sha256: sum}, !f.IsLFS
	}
	if gitID.MatchString(a.LatestCommitter.Id) {
		l.commit, l.named = a.LatestCommitter.Id, true
	}
	return l, nil
}

// parseModelScopeBatch parses the upload addresses of large files: nil for those that exist.
func parseModelScopeBatch(data []byte, sizes map[string]int64, home *url.URL) (map[string]*lfsUpload, error) {
	uploads, err := parseBatch(data, sizes, home)
	for _, u := range uploads {
		if u != nil && u.chunk > 0 {
			return nil, fmt.Errorf("ModelScope requires an upload in parts: %w", tensor.ErrUnsupported)
		}
	}
	return uploads, err
}
