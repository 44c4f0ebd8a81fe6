package serve_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	stdimage "image"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/serve"
)

const (
	pictureFiles = "../picture/testdata/files/"
	clipFiles    = "../sound/testdata/files/"
)

// shown exports a family that sees or hears into dir.
func shown(t testing.TB, dir, family string) string {
	t.Helper()
	dir, err := stagetest.Export(t.Context(), dir, "../../pipeline/arch/testdata/"+family, "quantize: {block: auto}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// withReader opens what reads pictures and clips for a server of the package in dir.
func withReader(t testing.TB, dir string) (*runtime.Reader, func(o *serve.Options)) {
	t.Helper()
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	r, err := runtime.NewReader(p, cpu.Backend{}, runtime.Options{Mode: backend.Int8, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r, func(o *serve.Options) { o.Reader, o.MaxBody = r, 1<<20 }
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

// clip is a part of content with a file.
func clip(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(clipFiles + file)
	if err != nil {
		t.Fatal(err)
	}
	return heard(base64.StdEncoding.EncodeToString(b), strings.TrimPrefix(filepath.Ext(file), "."))
}

// heard is a part of content.
func heard(data, format string) string {
	return `{"type":"input_audio","input_audio":{"data":"` + data + `","format":"` + format + `"}}`
}

// image is a part of content.
func image(url string) string { return `{"type":"image_url","image_url":{"url":"` + url + `"}}` }

// looking is a request with a picture or clip between two texts.
func looking(part, more string) string {
	return `{"messages":[{"role":"user","content":[{"type":"text","text":"Look at "},` + part + `,{"type":"text","text":"now."}]}` + more +
		`],"max_tokens":6,"temperature":0`
}

// TestShown: an answer to a picture or clip is what the package continues the prompt of the template with, as generate does; another one
// in the same place has its own answer, although keys and values of the first one are kept.
func TestShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		family, size, before, after string
		clips, long                 bool
	}{
		{family: "llava", after: "\n"},
		{family: "internvl", after: "\n", long: true},
		{family: "qwen2_vl", size: "<hw>56,84</hw>"},
		{family: "smolvlm", size: "<hw>32,32</hw>"},
		{family: "qwen2_audio", before: "Audio 1: <|audio_bos|>", after: "<|audio_eos|>\n", clips: true},
		{family: "qwen2_5_omni_thinker", before: "<|audio_bos|>", after: "<|audio_eos|>", clips: true, long: true},
	} {
		t.Run(c.family, func(t *testing.T) {
			t.Parallel()
			if c.long && testing.Short() {
				t.Skip("one family of each kind is enough in short mode")
			}
			dir := shown(t, t.TempDir(), c.family)
			reader, set := withReader(t, dir)
			s := newServerOf(t, dir, set)
			mark := func(file string) string { return "<img>" + c.size + pictureFiles + file + "</img>" }
			part := func(file string) string { return image(dataURL(t, file)) }
			one, other := "rgb.jpg", "gray.png" // of 23 x 17 pixels; the library of Qwen2-VL makes 56 x 84
			if c.clips {
				mark = func(file string) string { return "<audio>" + clipFiles + file + "</audio>" }
				part = func(file string) string { return clip(t, file) }
				one, other = "rising.wav", "16000.flac"
			}
			before := "<s>user\nLook at " + c.before
			want := func(file string) (string, int) {
				in, err := reader.Read(t.Context(), before+mark(file)+c.after+"now.</s>\n<s>assistant\n")
				if err != nil {
					t.Fatal(err)
				}
				return s.continued(in), len(in.Tokens)
			}
			for i, file := range []string{one, other, one} {
				text, n := want(file)
				a := s.post("/v1/chat/completions", looking(part(file), "")+`}`)
				if got := a.Choices[0].Message.Content; got != text || a.Usage.Prompt != n {
					t.Errorf("request %d: %q from %d tokens, want %q from %d", i, got, a.Usage.Prompt, text, n)
				}
				if cached := a.Usage.Details.Cached; i < 2 && cached > len(before) {
					t.Errorf("request %d: %d tokens are cached, more than are before what is shown", i, cached)
				}
			}
			// The conversation continues: what was shown is sent again, and not computed again.
			more := `,{"role":"assistant","content":"x"},{"role":"user","content":"Again?"}`
			a := s.post("/v1/chat/completions", looking(part(one), more)+`}`)
			if _, n := want(one); a.Usage.Details.Cached < n-8 {
				t.Errorf("%d tokens of the %d before are cached", a.Usage.Details.Cached, n)
			}
			text, _ := want(one)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					status, _, body := s.do("POST", "/v1/chat/completions", looking(part(one), "")+`,"seed":1}`)
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
			_, _, body := s.do("GET", "/v1/models", "")
			sees := !c.clips || c.family == "qwen2_5_omni_thinker"
			if json.Unmarshal([]byte(body), &m) != nil || m.Data[0].Capabilities["pictures"] != sees || m.Data[0].Capabilities["sound"] != c.clips {
				t.Errorf("models: %s", body)
			}
		})
	}
}

// TestShownTogether: a picture and clips of one message are where they were sent.
func TestShownTogether(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a package that sees and hears")
	}
	dir := shown(t, t.TempDir(), "qwen2_5_omni_thinker")
	reader, set := withReader(t, dir)
	s := newServerOf(t, dir, set)
	sound := func(file string) string { return "<|audio_bos|><audio>" + clipFiles + file + "</audio><|audio_eos|>" }
	text := "<s>user\nLook at " + sound("rising.wav") + "<img><hw>56,84</hw>" + pictureFiles + "rgb.jpg</img>" + sound("16000.wav") + "now.</s>\n<s>assistant\n"
	in, err := reader.Read(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	want := s.continued(in)
	a := s.post("/v1/chat/completions", looking(clip(t, "rising.wav")+`,`+image(dataURL(t, "rgb.jpg"))+`,`+clip(t, "16000.flac"), "")+`}`)
	if got := a.Choices[0].Message.Content; got != want || a.Usage.Prompt != len(in.Tokens) {
		t.Errorf("%q from %d tokens, want %q from %d", got, a.Usage.Prompt, want, len(in.Tokens))
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
	dir := shown(t, t.TempDir(), "qwen2_vl")
	_, set := withReader(t, dir)
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
	dir := shown(t, t.TempDir(), "llava")
	_, set := withReader(t, dir)
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
		"sound":          {user(`{"type":"input_audio","input_audio":{}}`), "reads no sound"},
		"a file part":    {user(`{"type":"file","file":{}}`), "the type must be text or image_url"},
		"too many":       {user(strings.Repeat(image(dataURL(t, "bits.png"))+`,`, 32) + image(dataURL(t, "bits.png"))), "more than 32 pictures and clips"},
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

// TestClipsRefused: every clip that cannot be heard is refused with a sentence, and its memory is bounded.
func TestClipsRefused(t *testing.T) {
	t.Parallel()
	dir := shown(t, t.TempDir(), "qwen2_audio")
	_, set := withReader(t, dir)
	s := newServerOf(t, dir, set)
	user := func(parts string) string { return `{"messages":[{"role":"user","content":[` + parts + `]}]}` }
	const formats, data = "format must be wav or flac", "must be the file in base64"
	for name, c := range map[string]struct{ body, want string }{
		"MP3":            {user(heard("SUQz", "mp3")), "does not read mp3: " + formats},
		"no format":      {user(`{"type":"input_audio","input_audio":{"data":"SUQz"}}`), formats},
		"MP3 as WAV":     {user(heard("SUQzBAAAAAAAAAAAAAAAAAAA", "wav")), "clip 1: not a WAV or FLAC sound; convert MP3 and others to WAV"},
		"an address":     {user(heard("https://example.org/x.wav", "wav")), data},
		"a path":         {user(heard("/etc/passwd", "wav")), data},
		"a data URL":     {user(heard("data:audio/wav;base64,UklGRg==", "wav")), data},
		"nothing":        {user(heard("", "wav")), data},
		"a text":         {user(`{"type":"input_audio","input_audio":"SUQz"}`), "must be an object with data and format"},
		"a number":       {user(`{"type":"input_audio","input_audio":{"data":3,"format":"wav"}}`), "data of input_audio must be a text"},
		"another member": {user(`{"type":"input_audio","input_audio":{"data":"SUQz","format":"wav","rate":"8"}}`), "does not support rate of input_audio"},
		"a member":       {user(`{"type":"input_audio","transcript":"x","input_audio":{}}`), "does not support transcript of a part"},
		"no samples":     {user(clip(t, "empty.wav")), "clip 1: the sound has no samples"},
		"mu-law":         {user(clip(t, "law.wav")), "clip 1: a WAV sound of encoding 7"},
		"the second":     {user(clip(t, "16000.wav") + `,` + clip(t, "law.wav")), "clip 2: a WAV sound of encoding 7"},
		"half":           {user(heard("UklGRiQAAABXQVZFZm10IBAAAAABAAEA", "wav")), "clip 1: the WAV sound is damaged"},
		"too short":      {user(heard(base64.StdEncoding.EncodeToString(silence(16000, 400)), "wav")), "clip 1: a clip of 400 samples at 16 kHz is too short"},
		"too long":       {user(heard(base64.StdEncoding.EncodeToString(silence(8000, 8000*30+1)), "wav")), "clip 1: the sound is longer than 30 s"},
		"NaN":            {user(heard(base64.StdEncoding.EncodeToString(notNumbers(t)), "wav")), "clip 1: the sound has samples that are NaN, infinite"},
		"a picture":      {user(image(dataURL(t, "bits.png"))), "this package reads no pictures"},
		"a file part":    {user(`{"type":"file","file":{}}`), "the type must be text or input_audio"},
		"too many":       {user(strings.Repeat(clip(t, "16000.wav")+`,`, 32) + clip(t, "16000.wav")), "more than 32 pictures and clips"},
		"context":        {user(strings.Repeat(clip(t, "rising.wav")+`,`, 31) + clip(t, "rising.wav")), "the context has 256"},
		"system":         {`{"messages":[{"role":"system","content":[` + clip(t, "16000.wav") + `]}]}`, "only messages of the user"},
		"an answer":      {`{"messages":[{"role":"assistant","content":"x","audio":{"id":"y"}}]}`, "keeps no sound of answers"},
		"speech":         {`{"messages":[{"role":"user","content":"x"}],"modalities":["text","audio"]}`, "does not support modalities"},
		"the token":      {user(clip(t, "16000.wav") + `,{"type":"text","text":"an <|AUDIO|>"}`), "the token that they become"},
	} {
		if status, _, body := s.do("POST", "/v1/chat/completions", c.body); status != 400 || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if status, _, body := s.do("POST", "/v1/chat/completions", user(heard(strings.Repeat("A", 1<<20), "wav"))); status != 413 {
		t.Errorf("too large: %d %s", status, body)
	}
	// A mark of generate is a text here: a client must not read files of the server.
	marked := fmt.Sprintf(`{"messages":[{"role":"user","content":"<audio>%srising.wav</audio>"}],"max_tokens":1}`, clipFiles)
	if a := s.post("/v1/chat/completions", marked); a.Usage.Prompt < 30 {
		t.Errorf("a mark is %d tokens", a.Usage.Prompt)
	}
	deaf := newServer(t, nil)
	if status, _, body := deaf.do("POST", "/v1/chat/completions", user(clip(t, "16000.wav"))); status != 400 || !strings.Contains(body, "reads no sound") {
		t.Errorf("no encoder: %d %s", status, body)
	}
}

// silence is a WAV file of 8 bits.
func silence(rate, samples int) []byte {
	b := []byte("RIFF----WAVEfmt ")
	for _, v := range []any{
		uint32(16), uint16(1), uint16(1), uint32(rate), uint32(rate), uint16(1), uint16(8), []byte("data"), uint32(samples), bytes.Repeat([]byte{128}, samples),
	} {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

// notNumbers is a WAV file with a sample that is NaN.
func notNumbers(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(clipFiles + "float.wav")
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(b[100:], 0x7fc00000)
	return b
}

// TestPictureSeats: requests with pictures wait when as many as compute have theirs in memory, and are refused when too many
// wait. A client that is refused by the picture leaves its seat.
func TestPictureSeats(t *testing.T) {
	t.Parallel()
	dir := shown(t, t.TempDir(), "llava")
	_, set := withReader(t, dir)
	s := newServerOf(t, dir, func(o *serve.Options) { set(o); o.Sessions, o.Queue = 1, 0 })
	for range 5 {
		if status, _, body := s.do("POST", "/v1/chat/completions", looking(image("data:image/png;base64,aGVsbG8="), "")+`}`); status != 400 {
			t.Fatalf("%d %s", status, body)
		}
	}
	var mu sync.Mutex
	count := map[int]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			status, _, _ := s.do("POST", "/v1/chat/completions", looking(image(dataURL(t, "rgb.jpg")), "")+`}`)
			mu.Lock()
			defer mu.Unlock()
			count[status]++
		})
	}
	all.Wait()
	if count[http.StatusOK] == 0 || count[http.StatusOK]+count[http.StatusTooManyRequests] != 8 {
		t.Errorf("%v", count)
	}
	if a := s.post("/v1/chat/completions", looking(image(dataURL(t, "rgb.jpg")), "")+`}`); a.Usage.Prompt == 0 {
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
