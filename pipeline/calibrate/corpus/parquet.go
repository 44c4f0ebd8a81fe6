package corpus

import (
	"context"
	"fmt"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// readParquet reads one column of texts, or a column list<struct<role, content>> of conversations.
func readParquet(ctx context.Context, f *file, visit func(passage) error) error {
	if err := checkFooter(f); err != nil {
		return err
	}
	var p *parquet.File
	err := guard(func() (err error) {
		p, err = parquet.OpenFile(f, f.size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		return err
	})
	if err != nil {
		return err
	}
	t, err := newTable(f.Data, p.Root())
	if err != nil {
		return err
	}
	at := 0
	for i, group := range p.RowGroups() {
		columns := p.Metadata().RowGroups[i].Columns
		for _, leaf := range t.leaves {
			if leaf.Index() >= len(columns) || leaf.Index() >= len(group.ColumnChunks()) {
				return corrupt("parquet: row group %d has %d columns", i, len(columns))
			}
			if err := checkPages(f, &columns[leaf.Index()].MetaData); err != nil {
				return err
			}
		}
		if at, err = t.group(ctx, group, at, visit); err != nil {
			return err
		}
	}
	return nil
}

// table is what to read of a file.
type table struct {
	column string            // of the file
	leaves []*parquet.Column // the texts, or roles and contents
	pair   int               // index in keys
	chat   bool
}

func newTable(d Data, root *parquet.Column) (*table, error) {
	t := &table{chat: d.Chat}
	has := func(name string) bool { return root.Column(name) != nil }
	if t.column = first(d.columns(), has); t.column == "" {
		var names []string
		for _, c := range root.Columns() {
			names = append(names, c.Name())
		}
		return nil, fmt.Errorf("no column %s; there are %s", strings.Join(d.columns(), " or "), listed(names))
	}
	c, want := root.Column(t.column), "texts"
	if d.Chat {
		t.leaves, t.pair = chatLeaves(c)
		want = "lists of messages with role and content or from and value"
	} else if isText(c) && c.MaxRepetitionLevel() == 0 {
		t.leaves = []*parquet.Column{c}
	}
	if t.leaves == nil {
		return nil, fmt.Errorf("column %s does not hold %s", t.column, want)
	}
	return t, nil
}

// group visits the rows of a row group, before which there are at rows, and returns how many there are behind it.
func (t *table) group(ctx context.Context, group parquet.RowGroup, at int, visit func(passage) error) (int, error) {
	all := make([]*cells, len(t.leaves))
	for i, leaf := range t.leaves {
		err := guard(func() error {
			all[i] = &cells{pages: group.ColumnChunks()[leaf.Index()].Pages()}
			return nil
		})
		if err != nil {
			return at, err
		}
		defer all[i].close()
	}
	rows := make([][]cell, len(all))
	for range group.NumRows() {
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

// chatLeaves finds the two columns of a list of messages and the spelling of their names. Writers put one or two
// groups of their own between the column and the struct.
func chatLeaves(c *parquet.Column) ([]*parquet.Column, int) {
	for c != nil && !c.Leaf() {
		for i, k := range keys {
			role, content := c.Column(k.role), c.Column(k.content)
			if role != nil && content != nil {
				if isText(role) && isText(content) && role.MaxRepetitionLevel() == 1 && content.MaxRepetitionLevel() == 1 {
					return []*parquet.Column{role, content}, i
				}
				return nil, 0
			}
		}
		if len(c.Columns()) != 1 {
			return nil, 0
		}
		c = c.Columns()[0]
	}
	return nil, 0
}

func isText(c *parquet.Column) bool { return c.Leaf() && c.Type().Kind() == parquet.ByteArray }

// passage makes one of the cells of a row.
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
	if len(roles) == 1 && roles[0].null && roles[0].level < elementLevel(t.leaves[0]) {
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
func elementLevel(leaf *parquet.Column) int {
	if leaf.Optional() {
		return leaf.MaxDefinitionLevel() - 1
	}
	return leaf.MaxDefinitionLevel()
}
