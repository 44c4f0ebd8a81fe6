package hub

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	gomlx "github.com/gomlx/go-huggingface/hub"
)

// TestOtherGoClient has a client that no one here wrote read the same hub and the same cache: it agrees about the
// files, and finds those that we have fetched where it would put them.
func TestOtherGoClient(t *testing.T) {
	files := tinyFiles()
	h, _, commit, o := realHub(t, files)
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	h.ResetStats()
	repo := gomlx.New(testRepo).WithEndpoint(o.Endpoint).WithAuth(o.Token).WithCacheDir(o.CacheDir).WithProgressBar(false)
	repo.Verbosity = 0
	listed := map[string]*gomlx.FileInfo{}
	for f, err := range repo.IterFileInfos() {
		if err != nil {
			t.Fatal(err)
		}
		listed[f.Name] = f
	}
	if len(listed) != len(files) || repo.Info().CommitHash != commit || repo.Info().Private {
		t.Errorf("%d files of commit %s", len(listed), repo.Info().CommitHash)
	}
	for _, f := range s.Files {
		l := listed[f.Name]
		if l == nil || l.Size != f.Size || (l.LFS != nil) != (f.SHA256 != "") || l.LFS != nil && (l.LFS.SHA256 != f.SHA256 || l.LFS.Size != f.Size) {
			t.Errorf("%+v is listed as %+v", f, l)
		}
		path, err := repo.DownloadFile(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.Stat(filepath.Join(s.Dir, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.Stat(path); err != nil || !os.SameFile(got, want) {
			t.Errorf("%s: at %s, not in %s: %v", f.Name, path, s.Dir, err)
		}
		if n := h.Sent(testRepo + "/" + f.Name); n > 0 {
			t.Errorf("%s was fetched again", f.Name)
		}
	}
	// Why its type of a whole repository is not used: it rejects a card with two licences.
	if json.Unmarshal([]byte(`{"cardData":{"license":["mit","apache-2.0"]}}`), &gomlx.RepoInfo{}) == nil {
		t.Error("its type reads cards with several licences now: see the package comment")
	}
	if again, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: commit}, o); err != nil || again.Dir != s.Dir {
		t.Errorf("%+v, %v", again, err)
	}
}
