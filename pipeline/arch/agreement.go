package arch

// either reads a number under one of two keys, which must agree if both exist.
func (c *Config) either(key, other string, max int) int {
	if !c.Has(key) {
		return c.Int(other, max)
	}
	c.sameInt(key, other, max)
	return c.Int(key, max)
}

// sameInt requires that an optional key agrees with another one.
func (c *Config) sameInt(key, other string, max int) {
	n, ok := c.OptInt(other, max)
	if m := c.Int(key, max); ok && m != n && c.Good(key, other) {
		c.Wrong(other, "%d contradicts %s %d", n, key, m)
	}
}

// eitherBool reads one of two keys, which must agree; false if both are missing.
func (b *builder) eitherBool(key, other string) bool {
	v := b.Bool(key, b.Bool(other, false))
	if b.Has(other) && v != b.Bool(other, false) && b.Good(key, other) {
		b.Wrong(key, "%t contradicts %s", v, other)
	}
	return v
}
