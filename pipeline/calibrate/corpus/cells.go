package corpus

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
)

// cell is one value of a column.
type cell struct {
	text  string
	null  bool
	level int // definition level
}

// cells reads a column chunk row by row.
type cells struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    [64]parquet.Value
	at, n  int
}

// close gives memory back to the library; its errors have been seen while reading.
func (c *cells) close() {
	_ = guard(func() error {
		parquet.Release(c.page)
		return c.pages.Close()
	})
}

// row is the values of the next row, at least one.
func (c *cells) row() (row []cell, err error) {
	err = guard(func() error {
		for {
			if c.at == c.n {
				err := c.more()
				if err == io.EOF && len(row) > 0 {
					return nil
				}
				if err == io.EOF {
					return io.ErrUnexpectedEOF
				}
				if err != nil {
					return err
				}
			}
			v := c.buf[c.at]
			if (v.RepetitionLevel() == 0) != (len(row) == 0) {
				if len(row) > 0 {
					return nil
				}
				return fmt.Errorf("a column does not begin with a row")
			}
			c.at++
			e := cell{null: v.IsNull(), level: v.DefinitionLevel()}
			if !e.null {
				if b := v.ByteArray(); utf8.Valid(b) {
					e.text = string(b)
				} else {
					return fmt.Errorf("not UTF-8 at byte %d of a text", validPrefix(b))
				}
			}
			row = append(row, e)
		}
	})
	return row, err
}

// more reads values into the buffer; io.EOF is the end of the column chunk.
func (c *cells) more() error {
	c.at, c.n = 0, 0
	for {
		if c.values == nil {
			page, err := c.pages.ReadPage()
			if err != nil {
				return err
			}
			parquet.Release(c.page)
			c.page, c.values = page, page.Values()
		}
		n, err := c.values.ReadValues(c.buf[:])
		c.n = n
		if err == io.EOF {
			c.values = nil
		} else if err != nil {
			return err
		}
		if n > 0 {
			return nil
		}
		if err == nil {
			return io.ErrNoProgress
		}
	}
}

// guard runs a call of the library, which panics on some files that are damaged. It keeps no goroutines in the way
// that it is used here, so that its panics arrive.
func guard(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = corrupt("parquet: %v", p)
		}
	}()
	if err := call(); err != nil {
		return corrupt("parquet: %v", err)
	}
	return nil
}
