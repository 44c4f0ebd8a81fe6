package hubs

import (
	"context"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestShelfHub(t *testing.T) {
	h := placetest.NewHub(t)
	o := hub.Options{Endpoint: h.URL, Token: fakehub.Token}
	store := HuggingFace{Repo: placetest.Repo, Options: &o, Transfer: placetest.Quick}
	story := placetest.Shelf{
		Ctx:   h.Ctx,
		Store: func(string) place.Store { return store },
		Open: func(ctx context.Context, name string, po place.OpenOptions) (place.Origin, error) {
			po.Transfer = placetest.Quick
			return OpenHuggingFaceAt(ctx, placetest.Repo+"@"+name, o, po)
		},
	}
	story.Run(t)
	t.Run("collision", story.Collision)
	// The package stays alone on main, and the index alone on its branch.
	if _, ok := h.Repo(placetest.Repo).Files("main")[channel.FileName]; ok {
		t.Error("the index is on main")
	}
	for name := range h.Repo(placetest.Repo).Files(channelBranch) {
		if name != channel.FileName && name != attributesFile {
			t.Errorf("%s is on the branch of channels", name)
		}
	}
	// Branches and tags come before channels of their names.
	on, _, err := store.Shelf()
	if err != nil {
		t.Fatal(err)
	}
	h.Repo(placetest.Repo).Branch("dev", h.Repo(placetest.Repo).History("main")[0])
	for _, name := range []string{"dev", "main", channelBranch} {
		if err := on.Ready(h.Ctx, name); err == nil || !strings.Contains(err.Error(), "choose another name for the channel") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A hub that fails once is asked again, and the channel moves once.
	before := len(h.Repo(placetest.Repo).History(channelBranch))
	h.Fault(fakehub.Rule{Fault: fakehub.Status, Status: 500, Path: "/api/models/" + placetest.Repo + "/commit/" + channelBranch, Times: 1})
	_, _, p := story.Release(t, "eight")
	story.Move(t, on, "stable", p)
	if n := len(h.Repo(placetest.Repo).History(channelBranch)); n != before+1 {
		t.Errorf("%d commits became %d", before, n)
	}
}
