package corpus

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxFooter bounds the metadata of a file in bytes.
const maxFooter = 64 << 20

// readParquet reads one column of texts, or a column list<struct<role, content>> of conversations.
func readParquet(ctx context.Context, f *file, visit func(passage) error) error {
	meta, err := readFooter(f)
	if err != nil {
		return err
	}
	root, err := newSchema(meta.Schema)
	if err != nil {
		return err
	}
	t, err := newTable(f.Data, root)
	if err != nil {
		return err
	}
	at := 0
	for i := range meta.RowGroups {
		if at, err = t.group(ctx, f, &meta.RowGroups[i], at, visit); err != nil {
			return err
		}
	}
	return nil
}

// readFooter reads the metadata at the end of a file.
func readFooter(f *file) (meta *format.FileMetaData, err error) {
	const mark = "PAR1"
	tail := make([]byte, 8)
	if f.size < int64(len(mark)+len(tail)) {
		return nil, corrupt("parquet: a file of %d bytes", f.size)
	}
	if _, err := f.ReadAt(tail, f.size-int64(len(tail))); err != nil {
		return nil, err
	}
	if string(tail[4:]) != mark {
		return nil, corrupt("parquet: the file ends with %q, not with %q; it may be cut off", tail[4:], mark)
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > min(maxFooter, f.size-int64(len(mark)+len(tail))) {
		return nil, corrupt("parquet: metadata of %d bytes in a file of %d", n, f.size)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, f.size-int64(len(tail))-n); err != nil {
		return nil, err
	}
	w := walker{b: b}
	if w.structure(0, 0, func(int, int, int64) {}); w.bad {
		return nil, corrupt("parquet: damaged metadata")
	}
	defer func() {
		if p := recover(); p != nil {
			meta, err = nil, corrupt("parquet: metadata: %v", p)
		}
	}()
	meta = new(format.FileMetaData)
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), b, meta); err != nil {
		return nil, corrupt("parquet: metadata: %v", err)
	}
	return meta, nil
}

// table is what to read of a file.
type table struct {
	column string  // of the file
	leaves []*leaf // the texts, or roles and contents
	pair   int     // index in keys
	chat   bool
}

func newTable(d Data, root *node) (*table, error) {
	t := &table{chat: d.Chat}
	t.column = first(d.columns(), func(name string) bool { return root.child(name) != nil })
	if t.column == "" {
		var names []string
		for _, c := range root.children {
			names = append(names, c.name)
		}
		return nil, fmt.Errorf("no column %s; there are %s", strings.Join(d.columns(), " or "), listed(names))
	}
	c, want := root.child(t.column), "texts"
	if d.Chat {
		t.leaves, t.pair = chatLeaves(c)
		want = "lists of messages with role and content or from and value"
	} else if c.leaf != nil && c.leaf.text && c.leaf.reps == 0 {
		t.leaves = []*leaf{c.leaf}
	}
	if t.leaves == nil {
		return nil, fmt.Errorf("column %s does not hold %s", t.column, want)
	}
	return t, nil
}

// chatLeaves finds the two columns of a list of messages and the spelling of their names. Writers put one or two
// groups of their own between the column and the struct.
func chatLeaves(c *node) ([]*leaf, int) {
	good := func(n *node) bool { return n.leaf != nil && n.leaf.text && n.leaf.reps == 1 }
	for {
		for i, k := range keys {
			if role, content := c.child(k.role), c.child(k.content); role != nil && content != nil {
				if !good(role) || !good(content) {
					return nil, 0
				}
				return []*leaf{role.leaf, content.leaf}, i
			}
		}
		if len(c.children) != 1 {
			return nil, 0
		}
		c = c.children[0]
	}
}

// group visits the rows of a row group, which begins after at rows, and returns the number of rows up to its end.
func (t *table) group(ctx context.Context, f *file, group *format.RowGroup, at int, visit func(passage) error) (int, error) {
	all := make([]*cells, len(t.leaves))
	for i, leaf := range t.leaves {
		if leaf.index >= len(group.Columns) {
			return at, corrupt("parquet: a row group has %d columns", len(group.Columns))
		}
		p, err := newPages(f, leaf, &group.Columns[leaf.index].MetaData)
		if err != nil {
			return at, err
		}
		defer p.close()
		all[i] = &cells{pages: p}
	}
	rows := make([][]cell, len(all))
	for range group.NumRows {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		at++
		for i, c := range all {
			var err error
			if rows[i], err = c.row(); err != nil {
				return at, fmt.Errorf("row %d: %w", at, err)
			}
		}
		p, err := t.passage(rows)
		if err == nil && (t.chat || strings.TrimSpace(p.text) != "") {
			err = visit(p)
		}
		if err != nil {
			return at, fmt.Errorf("row %d: %w", at, err)
		}
	}
	return at, nil
}

// passage converts the cells of a row.
func (t *table) passage(rows [][]cell) (passage, error) {
	p := passage{start: true}
	if !t.chat {
		c := rows[0][0]
		if c.null {
			return p, fmt.Errorf("%s is null, not a string", t.column)
		}
		p.text = c.text
		return p, nil
	}
	roles, contents := rows[0], rows[1]
	if len(roles) != len(contents) {
		return p, corrupt("parquet: %d of %s and %d of %s", len(roles), keys[t.pair].role, len(contents), keys[t.pair].content)
	}
	// A list without elements has a single value, of a level below that of an element.
	if len(roles) == 1 && roles[0].null && roles[0].level < t.leaves[0].elementLevel() {
		return p, checkChat(t.column, nil)
	}
	for i, role := range roles {
		if role.null || contents[i].null {
			return p, fmt.Errorf("%s, message %d: no %s and %s", t.column, i+1, keys[t.pair].role, keys[t.pair].content)
		}
		m, err := newMessage(t.pair, role.text, contents[i].text)
		if err != nil {
			return p, fmt.Errorf("%s, message %d: %w", t.column, i+1, err)
		}
		p.messages = append(p.messages, m)
	}
	return p, nil
}

// elementLevel is the definition level from which the struct around a leaf exists.
func (l *leaf) elementLevel() int {
	if l.optional {
		return l.defs - 1
	}
	return l.defs
}

// cell is one value of a column.
type cell struct {
	text  string
	null  bool
	level int // definition level
}

// cells reads a column chunk row by row.
type cells struct {
	*pages
	binary    bool // values are bytes, not texts
	at, there int  // next value of the page, and the number of values before it that are not null
}

// row is the values of the next row, at least one.
func (c *cells) row() ([]cell, error) {
	var row []cell
	for {
		for c.at == c.n {
			err := c.next()
			if err == io.EOF && len(row) > 0 {
				return row, nil
			}
			if err == io.EOF {
				err = corrupt("parquet: a column ends before its row group")
			}
			if err != nil {
				return nil, err
			}
			c.at, c.there = 0, 0
		}
		if begins := c.reps == nil || c.reps[c.at] == 0; begins != (len(row) == 0) {
			if len(row) > 0 {
				return row, nil
			}
			return nil, corrupt("parquet: a column does not begin with a row")
		}
		e := cell{level: c.leaf.defs}
		if c.defs != nil {
			e.level = int(c.defs[c.at])
		}
		c.at++
		if e.null = e.level < c.leaf.defs; !e.null {
			b := c.value(c.there)
			c.there++
			if !c.binary && !utf8.Valid(b) {
				return nil, corrupt("not UTF-8 at byte %d of a text", validPrefix(b))
			}
			e.text = string(b)
		}
		row = append(row, e)
	}
}
