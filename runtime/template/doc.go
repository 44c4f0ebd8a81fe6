// Package template renders the chat templates of models, which are written in Jinja, to the same bytes as the Python
// library transformers: jinja2 3.1.6 in its immutable sandbox, with trim_blocks and lstrip_blocks, the tags break,
// continue and generation, the functions raise_exception and strftime_now, and a filter tojson that escapes nothing for
// HTML.
//
// [Parse] reads a template, [Template.Render] renders it, [Chat] renders it for a conversation. An [Object] keeps the
// order of its keys, which templates print; [DecodeJSON] returns objects. Package syntax has the grammar, package lower
// rewrites templates for the MNN engine, and package engine renders as that engine does.
//
// Unsupported features of jinja2 are rejected by name with tensor.ErrUnsupported, never rendered differently: other
// templates (include, import, extends, block), autoescape, some filters that make HTML, integers beyond 64 bits, powers
// of fractions, and the texts of generators and functions, which hold an address in Python. An error of Python is an
// [Error] with Python's name for it; the message may differ. A slice of a constant that cannot be sliced, as in
// {{ 5[1:] }}, is always an error, while the optimizer of jinja2 makes it undefined.
//
// A template is foreign code. It reaches only the values that it is given, and [Limits] bound its time, memory and
// recursion.
package template
