package template_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/template/templatetest"
)

// chats is what transformers made of templates and conversations; testdata/chats.py records it.
type chats struct {
	Provenance    string            `json:"provenance"`
	BOS           string            `json:"bos_token"`
	EOS           string            `json:"eos_token"`
	Conversations map[string]string `json:"conversations"` // digests of their files
	Templates     map[string]struct {
		Name  string            `json:"name"`
		Texts map[string]string `json:"texts"` // 16 digits of a digest, or an error
	} `json:"templates"`
}

func readChats(t testing.TB) (c chats) {
	t.Helper()
	b, err := os.ReadFile("testdata/chats.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestChats holds templates of models to transformers on all conversations. The environment variable
// LLMEXPORT_TEMPLATES names further folders of templates for which chats.json has digests.
func TestChats(t *testing.T) {
	golden := readChats(t)
	for _, c := range conversations.All() {
		b, err := os.ReadFile("conversations/data/" + c.Name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if digest := sha256.Sum256(b); hex.EncodeToString(digest[:]) != golden.Conversations[c.Name] {
			t.Errorf("%s is not the conversation for which the goldens were recorded", c.Name)
		}
	}
	folders := append([]string{"testdata/templates"}, filepath.SplitList(os.Getenv("LLMEXPORT_TEMPLATES"))...)
	texts, refused := 0, 0
	seen := map[string]bool{}
	for i, folder := range folders {
		found := templatetest.Sources(t, folder)
		if i == 0 && len(found) < 25 {
			t.Fatalf("only %d templates", len(found))
		}
		for _, source := range found {
			digest := sha256.Sum256([]byte(source))
			key := hex.EncodeToString(digest[:])
			if seen[key] {
				continue
			}
			seen[key] = true
			want, ok := golden.Templates[key]
			if !ok {
				t.Errorf("a template of %s has no goldens: run testdata/chats.py with it", folder)
				continue
			}
			t.Run(want.Name, func(t *testing.T) {
				tmpl, err := template.Parse(want.Name, source)
				if err != nil {
					t.Fatal(err)
				}
				limits := template.Limits{Now: time.Date(2026, 3, 5, 7, 8, 9, 12_345_000, time.UTC)}
				for _, c := range conversations.All() {
					out, err := c.Render(conversations.With(t.Context(), tmpl, golden.BOS, golden.EOS, limits))
					if err != nil {
						refused++
						compareError(t, c.Name, err, want.Texts[c.Name])
						continue
					}
					texts++
					digest := sha256.Sum256([]byte(out))
					if got := hex.EncodeToString(digest[:8]); got != want.Texts[c.Name] {
						t.Errorf("%s: %s, want %s; the text is %q", c.Name, got, want.Texts[c.Name], out)
					}
				}
			})
		}
	}
	t.Logf("%d templates, %d texts, %d refusals", len(seen), texts, refused)
}

// compareError compares an error with one of Python, "Kind: message". The messages of raise_exception are the
// template's own; others may have other words.
func compareError(t *testing.T, conversation string, err error, want string) {
	t.Helper()
	kind, message, ok := strings.Cut(want, ": ")
	if !ok {
		t.Errorf("%s: %v, want the text %s", conversation, err, want)
		return
	}
	e, ok := errors.AsType[*template.Error](err)
	if !ok {
		if kind != "ValueError" { // of continue_final_message
			t.Errorf("%s: %v, want %s", conversation, err, want)
		}
		return
	}
	first, _, _ := strings.Cut(e.Message, "\n")
	if e.Kind != kind || kind == "TemplateError" && first != message {
		t.Errorf("%s: %s: %v, want %s", conversation, e.Kind, e, want)
	}
}
