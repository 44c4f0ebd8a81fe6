package serve_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	stdimage "image"
	"image/png"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/serve"
)

const pictureFiles = "../picture/testdata/files/"

// seeing exports a family with a tower into dir.
func seeing(t testing.TB, dir, family string) string {
	t.Helper()
	dir, err := stagetest.Export(t.Context(), dir, "../../pipeline/arch/testdata/"+family, "quantize: {block: auto}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// withTower opens the tower of the package in dir for a server.
func withTower(t testing.TB, dir string) (*runtime.Reader, func(o *serve.Options)) {
	t.Helper()
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	tower, err := runtime.NewTower(p, cpu.Backend{}, runtime.Options{Mode: backend.Int8, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.Reader{Package: p, Tower: tower}, func(o *serve.Options) { o.Tower, o.MaxBody = tower, 1<<20 }
}

// dataURL is a file as a client sends it.
func dataURL(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(pictureFiles + file)
	if err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b)
}

// image is a part of content.
func image(url string) string { return `{"type":"image_url","image_url":{"url":"` + url + `"}}` }

// looking is a request with a picture between two texts.
func looking(url, more string) string {
	return `{"messages":[{"role":"user","content":[{"type":"text","text":"Look at "},` + image(url) + `,{"type":"text","text":"now."}]}` + more +
		`],"max_tokens":6,"temperature":0`
}

// TestPictures: an answer to a picture is what the package continues the prompt of the template with, as generate does; another
// picture in the same place has its own answer, although keys and values of the first one are kept.
func TestPictures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ family, size, after string }{
		{"llava", "", "\n"}, {"internvl", "", "\n"}, {"qwen2_vl", "<hw>56,84</hw>", ""}, {"smolvlm", "<hw>32,32</hw>", ""},
	} {
		t.Run(c.family, func(t *testing.T) {
			t.Parallel()
			dir := seeing(t, t.TempDir(), c.family)
			reader, set := withTower(t, dir)
			s := newServerOf(t, dir, set)
			want := func(file string) (string, int) {
				in, err := reader.Read(t.Context(), "<s>user\nLook at <img>"+c.size+pictureFiles+file+"</img>"+c.after+"now.</s>\n<s>assistant\n")
				if err != nil {
					t.Fatal(err)
				}
				return s.continued(in), len(in.Tokens)
			}
			// Of 23 x 17 pixels, the library of Qwen2-VL makes 56 x 84.
			for i, file := range []string{"rgb.jpg", "gray.png", "rgb.jpg"} {
				text, n := want(file)
				a := s.post("/v1/chat/completions", looking(dataURL(t, file), "")+`}`)
				if got := a.Choices[0].Message.Content; got != text || a.Usage.Prompt != n {
					t.Errorf("request %d: %q from %d tokens, want %q from %d", i, got, a.Usage.Prompt, text, n)
				}
				if cached := a.Usage.Details.Cached; i < 2 && cached > 16 {
					t.Errorf("request %d: %d tokens are cached, more than are before the picture", i, cached)
				}
			}
			// The conversation continues: its picture is sent again, and not computed again.
			more := `,{"role":"assistant","content":"x"},{"role":"user","content":"Again?"}`
			a := s.post("/v1/chat/completions", looking(dataURL(t, "rgb.jpg"), more)+`}`)
			if _, n := want("rgb.jpg"); a.Usage.Details.Cached < n-8 {
				t.Errorf("%d tokens of the picture's %d are cached", a.Usage.Details.Cached, n)
			}
			text, _ := want("rgb.jpg")
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					status, _, body := s.do("POST", "/v1/chat/completions", looking(dataURL(t, "rgb.jpg"), "")+`,"seed":1}`)
					var a answer
					if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 || a.Choices[0].Message.Content != text {
						t.Errorf("at the same time: %d, %s", status, body)
					}
				})
			}
			all.Wait()
			var m struct {
				Data []struct{ Capabilities map[string]bool }
			}
			if _, _, body := s.do("GET", "/v1/models", ""); json.Unmarshal([]byte(body), &m) != nil || !m.Data[0].Capabilities["pictures"] {
				t.Errorf("models: %s", body)
			}
		})
	}
}

// continued is what generate makes of a prompt, as a client gets it.
func (s *served) continued(in *runtime.Prompt) string {
	s.t.Helper()
	f := s.session.Fork()
	f.Start(in)
	text := s.pkg.Tokenizer.Stream()
	var b strings.Builder
	err := f.Generate(s.t.Context(), in.Tokens, runtime.GenerateOptions{MaxTokens: 6}, func(token int32) bool {
		b.WriteString(text.Next(token))
		return true
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return string([]rune(b.String() + text.Close()))
}

// TestDetail: a tower of any size gets the area that a request asks for.
func TestDetail(t *testing.T) {
	t.Parallel()
	dir := seeing(t, t.TempDir(), "qwen2_vl")
	_, set := withTower(t, dir)
	s := newServerOf(t, dir, func(o *serve.Options) { set(o); o.Context = 512 })
	tokens := map[string]int{}
	for _, name := range []string{"low", "high", "auto"} {
		// 1456 x 560 pixels: 52 x 20 cells. 512 x 512 pixels of that shape are 29 x 11.
		part := strings.Replace(image(grayPNG(t, 1456, 560)), `"}}`, `","detail":"`+name+`"}}`, 1)
		status, _, body := s.do("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":[`+part+`]}],"max_tokens":1,"seed":1}`)
		if name != "low" { // 1040 tokens are more than the context
			if status != 400 || !strings.Contains(body, "context_length_exceeded") {
				t.Errorf("%s: %d %s", name, status, body)
			}
			continue
		}
		var a answer
		if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		tokens[name] = a.Usage.Prompt
	}
	if n := tokens["low"]; n < 29*11+2 || n > 29*11+30 {
		t.Errorf("low: %d tokens", n)
	}
}

// TestPicturesRefused: a server opens no files and no addresses for its clients, and bounds what they send.
func TestPicturesRefused(t *testing.T) {
	t.Parallel()
	dir := seeing(t, t.TempDir(), "llava")
	_, set := withTower(t, dir)
	s := newServerOf(t, dir, set)
	user := func(parts string) string { return `{"messages":[{"role":"user","content":[` + parts + `]}]}` }
	const fetches, data = "fetches no pictures and opens no files", "must be data:image/png;base64,DATA"
	for name, c := range map[string]struct{ body, want string }{
		"http":           {user(image("http://127.0.0.1/x.png")), fetches},
		"https":          {user(image("https://example.org/x.png")), fetches},
		"a file":         {user(image("file:///etc/passwd")), fetches},
		"a path":         {user(image("/etc/passwd")), fetches},
		"no address":     {user(image("")), fetches},
		"no base64":      {user(image("data:image/png,abc")), data},
		"a text as data": {user(image("data:text/plain;base64,aGVsbG8=")), data},
		"bad base64":     {user(image("data:image/png;base64,***")), "not base64"},
		"no picture":     {user(image("data:image/png;base64,aGVsbG8=")), "picture 1: not a JPEG, PNG, GIF, BMP or WebP picture"},
		"damaged":        {user(image("data:image/png;base64,iVBORw0KGgoAAAAN")), "picture 1: the PNG picture is damaged"},
		"huge":           {user(image(hugePNG)), "has more than 33554432 pixels"},
		"detail":         {user(`{"type":"image_url","image_url":{"url":"data:","detail":"best"}}`), "detail must be low, high or auto"},
		"another member": {user(`{"type":"image_url","image_url":{"url":"data:","format":"x"}}`), "does not support format"},
		"a member":       {user(`{"type":"image_url","size":3,"image_url":{"url":"data:"}}`), "does not support size"},
		"a text url":     {user(`{"type":"image_url","image_url":"data:"}`), "must be an object"},
		"a number":       {user(`{"type":"image_url","image_url":{"url":3}}`), "url of image_url must be a text"},
		"sound":          {user(`{"type":"input_audio","input_audio":{}}`), "the type must be text or image_url"},
		"too many":       {user(strings.Repeat(image(dataURL(t, "bits.png"))+`,`, 32) + image(dataURL(t, "bits.png"))), "more than 32 pictures"},
		"too long":       {user(strings.Repeat(image(dataURL(t, "bits.png"))+`,`, 19) + image(dataURL(t, "bits.png"))), "the context has 256"},
		"system":         {`{"messages":[{"role":"system","content":[` + image(dataURL(t, "bits.png")) + `]}]}`, "only messages of the user"},
		"the token":      {user(image(dataURL(t, "bits.png")) + `,{"type":"text","text":"an <image>"}`), "must not contain \\\"\\u003cimage\\u003e"},
	} {
		if status, _, body := s.do("POST", "/v1/chat/completions", c.body); status != 400 || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	large := image("data:image/png;base64," + strings.Repeat("A", 1<<20))
	if status, _, body := s.do("POST", "/v1/chat/completions", user(large)); status != 413 {
		t.Errorf("too large: %d %s", status, body)
	}
	// A mark of generate is a text here: a client must not read files of the server.
	marked := fmt.Sprintf(`{"messages":[{"role":"user","content":"<img>%srgb.jpg</img>"}],"max_tokens":1}`, pictureFiles)
	if a := s.post("/v1/chat/completions", marked); a.Usage.Prompt < 30 {
		t.Errorf("a mark is %d tokens", a.Usage.Prompt)
	}
	blind := newServer(t, nil)
	status, _, body := blind.do("POST", "/v1/chat/completions", user(image(dataURL(t, "bits.png"))))
	if status != 400 || !strings.Contains(body, "reads no pictures") {
		t.Errorf("no tower: %d %s", status, body)
	}
}

// TestPictureSeats: requests with pictures wait when as many as compute have theirs in memory, and are refused when too many
// wait. A client that is refused by the picture leaves its seat.
func TestPictureSeats(t *testing.T) {
	t.Parallel()
	dir := seeing(t, t.TempDir(), "llava")
	_, set := withTower(t, dir)
	s := newServerOf(t, dir, func(o *serve.Options) { set(o); o.Sessions, o.Queue = 1, 0 })
	for range 5 {
		if status, _, body := s.do("POST", "/v1/chat/completions", looking("data:image/png;base64,aGVsbG8=", "")+`}`); status != 400 {
			t.Fatalf("%d %s", status, body)
		}
	}
	var mu sync.Mutex
	count := map[int]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			status, _, _ := s.do("POST", "/v1/chat/completions", looking(dataURL(t, "rgb.jpg"), "")+`}`)
			mu.Lock()
			defer mu.Unlock()
			count[status]++
		})
	}
	all.Wait()
	if count[http.StatusOK] == 0 || count[http.StatusOK]+count[http.StatusTooManyRequests] != 8 {
		t.Errorf("%v", count)
	}
	if a := s.post("/v1/chat/completions", looking(dataURL(t, "rgb.jpg"), "")+`}`); a.Usage.Prompt == 0 {
		t.Error("nothing works afterwards")
	}
}

// hugePNG is the header of a picture of 8192 x 8192 pixels.
const hugePNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAIAAAACAACAIAAAD9yF0O"

// grayPNG is a gray picture.
func grayPNG(t testing.TB, width, height int) string {
	t.Helper()
	im := stdimage.NewGray(stdimage.Rect(0, 0, width, height))
	for i := range im.Pix {
		im.Pix[i] = byte(i / 64)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, im); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}
