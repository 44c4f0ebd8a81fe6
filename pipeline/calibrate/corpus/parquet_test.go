package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// written is what testdata/parquet.py writes.
func written() (texts, conversations []string) {
	words := strings.Fields("the river kept its course and the town grew along both banks until winter came")
	for i := range 60 {
		var run []string
		for k := range 3 + i%17 {
			run = append(run, words[(i+k)%len(words)])
		}
		s := fmt.Sprintf("%s %d.\nÜber 河 %d", strings.Join(run, " "), i, i)
		if i == 7 || i == 8 {
			s = ""
		}
		texts = append(texts, s)
	}
	for i := range 20 {
		s := ""
		if i%3 == 0 {
			s = "system=Answer briefly.;"
		}
		s += strings.Repeat("user="+texts[i]+"?;assistant="+texts[len(texts)-i-1]+";", 1+i%2)
		conversations = append(conversations, s)
	}
	return texts, conversations
}

// The files are pyarrow's: snappy with dictionaries and many pages, zstd, gzip with pages of version 2 and
// delta lengths.
func TestParquetOfPyarrow(t *testing.T) {
	texts, conversations := written()
	all := append(texts[:7:7], texts[9:]...) // two are empty
	for _, tc := range []struct {
		file string
		data Data
		want []string
	}{
		{"snappy.parquet", Data{}, all},
		{"chat-zstd.parquet", Data{Chat: true}, conversations},
		{"chat-zstd.parquet", Data{Column: "kind"}, strings.Fields(strings.Repeat("a b ", 10))},
		{"share-gzip-v2.parquet", Data{Chat: true}, conversations},
		{"share-gzip-v2.parquet", Data{Column: "text"}, all[:18]},
	} {
		b, err := os.ReadFile(filepath.Join("testdata", tc.file))
		if err != nil {
			t.Fatal(err)
		}
		tc.data.Path = tc.file
		got, err := passages(tc.data, b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", tc.file, d)
		}
	}
}

// parquetOf is a file that the library writes.
func parquetOf[T any](t testing.TB, rows []T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, options...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type (
	optionalRow struct {
		Text *string `parquet:"text,optional"`
	}
	turnRow struct {
		Role    *string `parquet:"role,optional"`
		Content string  `parquet:"content"`
	}
	chatRow struct {
		Messages []turnRow `parquet:"messages,list"`
	}
	repeatedRow struct {
		Messages []turnRow `parquet:"messages"`
	}
	numberedRow struct {
		Plain   string `parquet:"plain,plain"`
		Lengths string `parquet:"lengths"`
		Dict    string `parquet:"dict,dict"`
	}
	deltaRow struct {
		Text string `parquet:"text,delta"`
	}
	numberRow struct {
		Text int64    `parquet:"text"`
		Tags []string `parquet:"tags"`
	}
)

func TestParquetOfOthers(t *testing.T) {
	user := "user"
	turns := []turnRow{{&user, "a"}, {&user, "b"}}
	text := "a text"
	chat := Data{Format: "parquet", Chat: true}
	for name, tc := range map[string]struct {
		data Data
		file []byte
		want []string
		err  string
	}{
		"list":     {chat, parquetOf(t, []chatRow{{turns}, {turns[:1]}}), []string{"user=a;user=b;", "user=a;"}, ""},
		"repeated": {chat, parquetOf(t, []repeatedRow{{turns}}), []string{"user=a;user=b;"}, ""},
		"plain":    {Data{Format: "parquet"}, parquetOf(t, []optionalRow{{&text}}), []string{text}, ""},
		"brotli": {Data{Format: "parquet"}, parquetOf(t, []optionalRow{{&text}}, parquet.Compression(&parquet.Brotli)), nil,
			"compression BROTLI, known are none, SNAPPY, GZIP and ZSTD: not supported"},
		"encoding": {Data{Format: "parquet"}, parquetOf(t, []deltaRow{{text}}), nil,
			"encoding DELTA_BYTE_ARRAY, known are PLAIN, RLE_DICTIONARY and DELTA_LENGTH_BYTE_ARRAY: not supported"},
		"no rows":     {Data{Format: "parquet"}, parquetOf(t, []optionalRow{}), nil, ""},
		"null":        {Data{Format: "parquet"}, parquetOf(t, []optionalRow{{&text}, {}}), nil, "row 2: text is null, not a string"},
		"no messages": {chat, parquetOf(t, []chatRow{{turns}, {}}), nil, "row 2: messages holds no messages"},
		"no role":     {chat, parquetOf(t, []chatRow{{[]turnRow{{&user, "a"}, {nil, "b"}}}}), nil, "row 1: messages, message 2: no role and content"},
		"only null":   {chat, parquetOf(t, []chatRow{{[]turnRow{{nil, "b"}}}}), nil, "row 1: messages, message 1: no role and content"},
		"no column":   {Data{Format: "parquet", Column: "body"}, parquetOf(t, []numberRow{{1, nil}}), nil, `no column body; there are ["text" "tags"]`},
		"no chat":     {chat, parquetOf(t, []numberRow{{1, nil}}), nil, `no column messages or conversations; there are ["text" "tags"]`},
		"number":      {Data{Format: "parquet"}, parquetOf(t, []numberRow{{1, nil}}), nil, "column text does not hold texts"},
		"list of text": {Data{Format: "parquet", Column: "tags"}, parquetOf(t, []numberRow{{1, []string{"a"}}}), nil,
			"column tags does not hold texts"},
		"chat of text": {Data{Format: "parquet", Column: "tags", Chat: true}, parquetOf(t, []numberRow{{1, []string{"a"}}}), nil,
			"column tags does not hold lists of messages"},
		"not UTF-8": {Data{Format: "parquet", Column: "messages", Chat: true}, parquetOf(t, []chatRow{{[]turnRow{{&user, "a\xff"}}}}), nil,
			"row 1: not UTF-8 at byte 1 of a text: corrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := passages(tc.data, tc.file)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A file that is cut off, or has one bit turned, gives an error or, where nothing notices, texts; it never panics.
func TestParquetDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, name := range []string{"snappy.parquet", "chat-zstd.parquet", "share-gzip-v2.parquet"} {
		whole, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		data := Data{Format: "parquet", Chat: name != "snappy.parquet"}
		for n := 0; n < len(whole); n += 31 {
			if _, err := passages(data, whole[:n]); !errors.Is(err, tensor.ErrCorrupt) {
				t.Fatalf("%s, %d bytes: %v", name, n, err)
			}
		}
		refused := 0
		for i := 0; i < len(whole); i += 3 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << (i % 8)
			if _, err := passages(data, b); err != nil {
				refused++
			}
		}
		if refused < len(whole)/12 {
			t.Errorf("%s: %d of %d damaged files were refused", name, refused, len(whole)/3)
		}
	}
}

// Many values make many runs, blocks and pages; another writer's files are read alike.
func TestParquetOfManyRows(t *testing.T) {
	var rows []numberedRow
	var want []string
	for i := range 5000 {
		text := strings.Repeat("x", i*i%97+1) + fmt.Sprint(i)
		rows = append(rows, numberedRow{text, text, fmt.Sprint("a", i*i%301)})
		want = append(want, text)
	}
	for name, options := range map[string][]parquet.WriterOption{
		"version 1": {parquet.DataPageVersion(1), parquet.PageBufferSize(3000), parquet.Compression(&parquet.Gzip)},
		"version 2": {parquet.DataPageVersion(2), parquet.PageBufferSize(3000), parquet.Compression(&parquet.Snappy)},
		"groups":    {parquet.MaxRowsPerRowGroup(700), parquet.Compression(&parquet.Zstd)},
	} {
		b := parquetOf(t, rows, options...)
		for column, value := range map[string]func(i int) string{
			"plain": func(i int) string { return want[i] }, "lengths": func(i int) string { return want[i] }, "dict": func(i int) string { return rows[i].Dict },
		} {
			got, err := passages(Data{Format: "parquet", Column: column}, b)
			if err != nil || len(got) != len(rows) {
				t.Fatalf("%s, %s: %d rows, %v", name, column, len(got), err)
			}
			for i, s := range got {
				if s != value(i) {
					t.Fatalf("%s, %s, row %d: %q, want %q", name, column, i+1, s, value(i))
				}
			}
		}
	}
}

func FuzzParquet(f *testing.F) {
	text := "a text"
	f.Add(parquetOf(f, []optionalRow{{&text}, {&text}}), false)
	f.Add(parquetOf(f, []chatRow{{[]turnRow{{&text, "a"}, {&text, "b"}}}}, parquet.Compression(&parquet.Zstd)), true)
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(files) != 4 {
		f.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, strings.Contains(name, "-"))
	}
	f.Fuzz(func(t *testing.T, b []byte, chat bool) {
		all, err := passages(Data{Format: "parquet", Chat: chat}, b)
		if err != nil && all != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if validPrefix(s) != len(s) {
				t.Fatalf("%q", s)
			}
		}
	})
}
