package repository

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Config holds the settings of a tokenizer in files other than its vocabulary: tokenizer_config.json,
// special_tokens_map.json and added_tokens.json.
type Config struct {
	// Class is tokenizer_class without the "Fast" at its end, or empty.
	Class string
	// ModelType is model_type of config.json.
	ModelType string
	// Remote is set if the repository brings a class of its own as Python code (auto_map).
	Remote bool

	addBOS, addEOS, addPrefixSpace, legacy *bool
	special                                []specialToken
	extra                                  []tokenizer.AddedToken // extra_special_tokens, in older files additional_special_tokens
	added                                  []tokenizer.AddedToken // added_tokens_decoder or added_tokens.json, by id
}

// specialToken is a token that has a name, such as bos_token. Without content there is none of that name.
type specialToken struct {
	name string
	tokenizer.AddedToken
}

// specialNames are those of the library transformers, in its order.
var specialNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// ConfigFiles are the bytes of the files; nil for one that does not exist.
type ConfigFiles struct {
	TokenizerConfig, SpecialTokensMap, AddedTokens []byte
	// Model is config.json.
	Model []byte
}

// ReadConfig reads them as transformers 5.23 does. Errors name the file.
func ReadConfig(files ConfigFiles) (*Config, error) {
	c := &Config{}
	var model struct {
		ModelType string `json:"model_type"`
		Class     string `json:"tokenizer_class"`
	}
	if files.Model != nil {
		if err := json.Unmarshal(files.Model, &model); err != nil {
			return nil, fmt.Errorf("config.json: %v: %w", err, tensor.ErrCorrupt)
		}
	}
	m, err := readMembers(files.TokenizerConfig)
	if err == nil {
		err = c.read(m)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %v: %w", err, tensor.ErrCorrupt)
	}
	if _, ok := m.values["added_tokens_decoder"]; !ok {
		// Files of older releases; newer ones write everything into one.
		if files.SpecialTokensMap != nil {
			m, err := readMembers(files.SpecialTokensMap)
			if err == nil {
				err = c.readSpecial(m)
			}
			if err != nil {
				return nil, fmt.Errorf("special_tokens_map.json: %v: %w", err, tensor.ErrCorrupt)
			}
		}
		if err := c.readAddedTokens(files.AddedTokens); err != nil {
			return nil, fmt.Errorf("added_tokens.json: %v: %w", err, tensor.ErrCorrupt)
		}
	}
	slices.SortFunc(c.added, func(a, b tokenizer.AddedToken) int { return cmp.Compare(a.ID, b.ID) })
	c.settle()
	c.Class = strings.TrimSuffix(cmp.Or(c.Class, model.Class), "Fast")
	c.ModelType = model.ModelType
	return c, nil
}

// members are those of a JSON object, with their names in the order of the file.
type members struct {
	names  []string
	values map[string]json.RawMessage
}

// readMembers reads an object; there are none in no bytes.
func readMembers(raw []byte) (m members, err error) {
	if raw == nil {
		return m, nil
	}
	if err := json.Unmarshal(raw, &m.values); err != nil {
		return m, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil || m.values == nil {
		return m, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return m, err
		}
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return m, err
		}
		m.names = append(m.names, name.(string))
	}
	return m, nil
}

// read takes what concerns ids from tokenizer_config.json.
func (c *Config) read(m members) error {
	for name, to := range map[string]any{
		"tokenizer_class": &c.Class, "add_bos_token": &c.addBOS, "add_eos_token": &c.addEOS,
		"add_prefix_space": &c.addPrefixSpace, "legacy": &c.legacy,
	} {
		if raw, ok := m.values[name]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return fmt.Errorf("%s: %v", name, err)
			}
		}
	}
	if raw, ok := m.values["auto_map"]; ok {
		var classes struct{ AutoTokenizer json.RawMessage }
		// An old form is the list itself.
		c.Remote = json.Unmarshal(raw, &classes) != nil || len(classes.AutoTokenizer) > 0
	}
	if raw, ok := m.values["added_tokens_decoder"]; ok {
		var tokens map[string]json.RawMessage
		if err := json.Unmarshal(raw, &tokens); err != nil {
			return fmt.Errorf("added_tokens_decoder: %v", err)
		}
		for key, raw := range tokens {
			id, err := strconv.ParseUint(key, 10, 31)
			if err != nil {
				return fmt.Errorf("added_tokens_decoder: id %q", key)
			}
			token, err := readToken(raw)
			if err != nil {
				return fmt.Errorf("added_tokens_decoder: %d: %v", id, err)
			}
			token.ID = int32(id)
			c.added = append(c.added, token)
		}
	}
	return c.readSpecial(m)
}

// readSpecial takes the tokens with names and the list of further ones. What was there before under a name is replaced.
func (c *Config) readSpecial(m members) error {
	for _, name := range append(slices.Clone(specialNames), m.names...) {
		raw, ok := m.values[name]
		standard := slices.Contains(specialNames, name)
		if !ok || !strings.HasSuffix(name, "_token") || !standard && string(raw) == "null" {
			continue
		}
		t := specialToken{name: name}
		if string(raw) != "null" {
			var err error
			if t.AddedToken, err = readToken(raw); err != nil && standard {
				return fmt.Errorf("%s: %v", name, err)
			} else if err != nil {
				continue // a setting such as add_bos_token
			}
		}
		if err := c.setSpecial(t); err != nil {
			return err
		}
	}
	for _, name := range []string{"additional_special_tokens", "extra_special_tokens"} {
		raw, ok := m.values[name]
		if !ok || string(raw) == "null" {
			continue
		}
		if raw[0] == '{' {
			named, err := readMembers(raw)
			if err != nil {
				return fmt.Errorf("%s: %v", name, err)
			}
			for _, key := range named.names {
				token, err := readToken(named.values[key])
				if err == nil {
					err = c.setSpecial(specialToken{key, token})
				}
				if err != nil {
					return fmt.Errorf("%s: %s: %v", name, key, err)
				}
			}
			continue
		}
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return fmt.Errorf("%s: %v", name, err)
		}
		if len(list) > 0 {
			c.extra = nil
		}
		for i, raw := range list {
			token, err := readToken(raw)
			if err != nil {
				return fmt.Errorf("%s: %d: %v", name, i, err)
			}
			c.extra = append(c.extra, token)
		}
	}
	return nil
}

// maxSpecial bounds the tokens that have names; transformers has seven, and models of images and sounds some more.
const maxSpecial = 1000

func (c *Config) setSpecial(t specialToken) error {
	if i := slices.IndexFunc(c.special, func(s specialToken) bool { return s.name == t.name }); i >= 0 {
		c.special[i] = t
		return nil
	}
	if len(c.special) == maxSpecial {
		return fmt.Errorf("more than %d tokens with names", maxSpecial)
	}
	c.special = append(c.special, t)
	return nil
}

// named returns the token of a name; it has no content if there is none.
func (c *Config) named(name string) tokenizer.AddedToken {
	for _, s := range c.special {
		if s.name == name {
			return s.AddedToken
		}
	}
	return tokenizer.AddedToken{}
}

// readAddedTokens reads added_tokens.json, ids by text.
func (c *Config) readAddedTokens(b []byte) error {
	if b == nil {
		return nil
	}
	var ids map[string]int32
	if err := json.Unmarshal(b, &ids); err != nil {
		return err
	}
	specials := map[string]bool{}
	for _, s := range c.special {
		specials[s.Content] = true
	}
	for _, a := range c.extra {
		specials[a.Content] = true
	}
	for text, id := range ids {
		special := specials[text]
		c.added = append(c.added, tokenizer.AddedToken{ID: id, Content: text, Special: special, Normalized: !special})
	}
	return nil
}

// settle sets the settings of tokens with names to those of their entries in added.
func (c *Config) settle() {
	for i, t := range c.special {
		for _, a := range c.added {
			if a.Content == t.Content {
				c.special[i].AddedToken = a
			}
		}
	}
}

// readToken reads a token: its text, or an object with settings. One whose text alone is given is special.
func readToken(raw json.RawMessage) (tokenizer.AddedToken, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		return tokenizer.AddedToken{Content: text, Special: true}, nil
	}
	var o struct {
		Content        *string
		LStrip, RStrip bool
		SingleWord     bool  `json:"single_word"`
		Normalized     *bool `json:"normalized"`
		Special        bool
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return tokenizer.AddedToken{}, err
	}
	if o.Content == nil {
		return tokenizer.AddedToken{}, fmt.Errorf("an object without content")
	}
	a := tokenizer.AddedToken{Content: *o.Content, LStrip: o.LStrip, RStrip: o.RStrip, SingleWord: o.SingleWord, Special: o.Special}
	if a.Normalized = !a.Special; o.Normalized != nil {
		a.Normalized = *o.Normalized
	}
	return a, nil
}
