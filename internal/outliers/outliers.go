// Package outliers makes variants of a small checkpoint that have the outliers of real models, to measure and test what they do
// to quantization.
package outliers

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Kinds of outliers.
const (
	// Channels are channels of the vectors that attention and MLPs read: one of 61 is 32 times as large as before, and one of 61 is
	// 32 times as small. Gammas have the factors, and the columns of the matrices behind them their inverses. Exact.
	Channels = "channels"
	// Rows are rows of v and up, and with them what o and down read, times powers of two of a heavy-tailed (Cauchy) distribution, up to
	// 512. The columns of o and down have the inverses. Exact.
	Rows = "rows"
	// Sink is a token that is put before every text, as models begin theirs, and whose states from the first layer on have two channels of 20,000,
	// which one neuron of the MLP writes. One channel of the stream marks the token; other tokens have a 32nd of theirs there.
	Sink = "sink"
)

// Kinds lists all kinds.
func Kinds() []string { return []string{Channels, Rows, Sink} }

// Exponents of two: what channels are scaled by, and the most that rows are.
const (
	channelExponent = 5
	rowExponent     = 9
)

// The sink: its activation, and the input of the down projection that makes it.
const sinkState, sinkInner = 20000, 1250

// config holds the keys that the variants need.
type config struct {
	Heads   int   `json:"num_attention_heads"`
	KVHeads int   `json:"num_key_value_heads"`
	HeadDim int   `json:"head_dim"`
	BOS     int32 `json:"bos_token_id"`
}

// Make writes a variant of the checkpoint in dir, with the kinds of outliers given, to out, which must not exist or be empty. The
// checkpoint is one of Llama's tensor names, with norms before blocks, in BF16; experts are matrices of their own. A sink also
// needs a token for its config.json's bos_token_id, and an MLP without experts in the first layer.
func Make(out, dir string, kinds ...string) error {
	for _, k := range kinds {
		if !slices.Contains(Kinds(), k) {
			return fmt.Errorf("unknown kind of outliers %q; choose of %s", k, strings.Join(Kinds(), ", "))
		}
	}
	m, err := read(dir)
	if err != nil {
		return err
	}
	if slices.Contains(kinds, Sink) {
		if err := m.sink(); err != nil {
			return err
		}
	}
	if slices.Contains(kinds, Channels) {
		m.channels()
	}
	if slices.Contains(kinds, Rows) {
		m.rows()
	}
	return m.write(out)
}

// model is a checkpoint in memory.
type model struct {
	config  config
	files   map[string][]byte // by name
	tensors map[string]*matrix
}

// matrix is a BF16 tensor; a vector has one row.
type matrix struct {
	rows, cols int
	data       []byte // of its file
}

func read(dir string) (*model, error) {
	m := &model{files: map[string][]byte{}, tensors: map[string]*matrix{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		m.files[e.Name()] = b
		if match, _ := filepath.Match("model*.safetensors", e.Name()); match {
			if err := m.index(b); err != nil {
				return nil, fmt.Errorf("%s: %w", e.Name(), err)
			}
		}
	}
	if err := json.Unmarshal(m.files["config.json"], &m.config); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return m, nil
}

// index finds the tensors of a file.
func (m *model) index(b []byte) error {
	var entries map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if len(b) < 8 || binary.LittleEndian.Uint64(b) > uint64(len(b)-8) {
		return errors.New("not a safetensors file")
	}
	head := 8 + int(binary.LittleEndian.Uint64(b))
	if err := json.Unmarshal(b[8:head], &entries); err != nil {
		return err
	}
	for name, e := range entries {
		if len(e.Shape) == 0 { // metadata
			continue
		}
		cols := e.Shape[len(e.Shape)-1]
		size := e.Offsets[1] - e.Offsets[0]
		if e.DType != "BF16" || len(e.Shape) > 2 || e.Offsets[0] < 0 || size <= 0 || e.Offsets[1] > len(b)-head {
			return fmt.Errorf("%s is not a matrix or vector of BF16", name)
		}
		m.tensors[name] = &matrix{size / 2 / cols, cols, b[head+e.Offsets[0] : head+e.Offsets[1]]}
	}
	return nil
}

func (m *model) write(out string) error {
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	if old, err := os.ReadDir(out); err != nil || len(old) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty", out))
	}
	for name, b := range m.files {
		if err := os.WriteFile(filepath.Join(out, name), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

func (w *matrix) at(r, c int) float32 {
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(w.data[2*(r*w.cols+c):])) << 16)
}

// set rounds to nearest, ties away from zero.
func (w *matrix) set(r, c int, v float32) {
	binary.LittleEndian.PutUint16(w.data[2*(r*w.cols+c):], uint16((math.Float32bits(v)+0x8000)>>16))
}

// scale multiplies every weight by two to some exponent, of its row and column.
func (w *matrix) scale(exponent func(r, c int) int) {
	for r := range w.rows {
		for c := range w.cols {
			if e := exponent(r, c); e != 0 {
				w.set(r, c, float32(math.Ldexp(float64(w.at(r, c)), e)))
			}
		}
	}
}

// matching calls f for the tensors whose names match, in the order of their names.
func (m *model) matching(pattern string, f func(name string, w *matrix)) {
	re := regexp.MustCompile(pattern)
	for _, name := range slices.Sorted(maps.Keys(m.tensors)) {
		if re.MatchString(name) {
			f(name, m.tensors[name])
		}
	}
}

func (m *model) channels() {
	exponent := func(c int) int {
		switch c % 61 {
		case 3:
			return channelExponent
		case 33:
			return -channelExponent
		}
		return 0
	}
	m.matching(`\.(input_layernorm|post_attention_layernorm)\.weight$`, func(_ string, w *matrix) {
		w.scale(func(_, c int) int { return exponent(c) })
	})
	m.matching(`\.(q_proj|k_proj|v_proj|gate_proj|up_proj|mlp\.gate|shared_expert_gate)\.weight$`, func(_ string, w *matrix) {
		w.scale(func(_, c int) int { return -exponent(c) })
	})
}

func (m *model) rows() {
	random := rand.New(rand.NewPCG(1, 1))
	exponents := func(n int) []int {
		list := make([]int, n)
		for i := range list {
			ratio := math.Abs(random.NormFloat64() / random.NormFloat64())
			list[i] = min(max(int(math.Log2(ratio)), 0), rowExponent)
		}
		return list
	}
	m.matching(`\.up_proj\.weight$`, func(name string, up *matrix) {
		e := exponents(up.rows)
		up.scale(func(r, _ int) int { return e[r] })
		m.tensors[strings.Replace(name, "up_proj", "down_proj", 1)].scale(func(_, c int) int { return -e[c] })
	})
	m.matching(`\.v_proj\.weight$`, func(name string, v *matrix) {
		e := exponents(v.rows)
		v.scale(func(r, _ int) int { return e[r] })
		if bias := m.tensors[strings.Replace(name, "v_proj.weight", "v_proj.bias", 1)]; bias != nil {
			bias.scale(func(_, c int) int { return e[c] })
		}
		o := m.tensors[strings.Replace(name, "v_proj", "o_proj", 1)]
		width := v.rows / m.config.KVHeads
		group := m.config.Heads / m.config.KVHeads
		o.scale(func(_, c int) int { return -e[c/width/group*width+c%width] })
	})
}

func (m *model) sink() error {
	const layer = "model.layers.0."
	get := func(name string) *matrix { return m.tensors[name+".weight"] }
	table, norm := get("model.embed_tokens"), get(layer+"post_attention_layernorm")
	gate, up, down := get(layer+"mlp.gate_proj"), get(layer+"mlp.up_proj"), get(layer+"mlp.down_proj")
	if table == nil || norm == nil || gate == nil || up == nil || down == nil {
		return errors.New("the first layer is not one of a norm and an MLP by Llama's names")
	}
	token := int(m.config.BOS)
	if token <= 0 || token >= table.rows {
		return fmt.Errorf("bos_token_id %d is not a token that a sink can be made of", token)
	}
	// The marker becomes small in all states, which only the token's own then are large in.
	mark, a, b := table.cols/3, table.cols/5, table.cols/2
	var length float64
	for c := range table.cols {
		length += float64(table.at(token, c)) * float64(table.at(token, c))
	}
	table.scale(func(_, c int) int { return -channelExponent * is(c == mark) })
	m.matching(`\.(o_proj|down_proj)\.weight$`, func(_ string, w *matrix) {
		w.scale(func(r, _ int) int { return -channelExponent * is(r == mark) })
	})
	table.set(token, mark, float32(8*math.Sqrt(length)))
	// The neuron whose weights are the least reads the marker and nothing else: gate and up give the root of what the
	// channels need, and less than a thousandth of it at other tokens.
	neuron, least := 0, math.Inf(1)
	for r := range gate.rows {
		var g, u, d float64
		for c := range gate.cols {
			g += float64(gate.at(r, c)) * float64(gate.at(r, c))
			u += float64(up.at(r, c)) * float64(up.at(r, c))
			d += float64(down.at(c, r)) * float64(down.at(c, r))
		}
		if g*u*d < least {
			neuron, least = r, g*u*d
		}
	}
	root := math.Sqrt(sinkInner) / (math.Sqrt(float64(table.cols)) * float64(norm.at(0, mark)))
	for c := range gate.cols {
		gate.set(neuron, c, 0)
		up.set(neuron, c, 0)
		down.set(c, neuron, 0)
	}
	gate.set(neuron, mark, float32(root))
	up.set(neuron, mark, float32(root))
	down.set(a, neuron, sinkState/sinkInner)
	down.set(b, neuron, -sinkState/sinkInner)
	return m.prefix(token)
}

func is(b bool) int {
	if b {
		return 1
	}
	return 0
}

// prefix makes the tokenizer put a token before every text.
func (m *model) prefix(token int) error {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(m.files["tokenizer.json"], &doc); err != nil {
		return fmt.Errorf("tokenizer.json: %w", err)
	}
	var added []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
	}
	if err := json.Unmarshal(doc["added_tokens"], &added); err != nil {
		return fmt.Errorf("tokenizer.json: added_tokens: %w", err)
	}
	i := slices.IndexFunc(added, func(t struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
	}) bool {
		return t.ID == token
	})
	if i < 0 {
		return fmt.Errorf("tokenizer.json: %d is not an added token", token)
	}
	type object = map[string]any
	special := object{"SpecialToken": object{"id": added[i].Content, "type_id": 0}}
	text := func(id string) object { return object{"Sequence": object{"id": id, "type_id": 0}} }
	post, err := json.Marshal(object{
		"type": "TemplateProcessing", "single": []object{special, text("A")}, "pair": []object{special, text("A"), text("B")},
		"special_tokens": object{added[i].Content: object{"id": added[i].Content, "ids": []int{token}, "tokens": []string{added[i].Content}}},
	})
	if err != nil {
		return err
	}
	doc["post_processor"] = post
	if m.files["tokenizer.json"], err = json.Marshal(doc); err != nil {
		return err
	}
	return nil
}
