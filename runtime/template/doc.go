// Package template renders the chat templates of models, which are written in Jinja, to the same bytes as the Python
// library transformers does: jinja2 3.1.6 in its immutable sandbox, with trim_blocks and lstrip_blocks, the tags
// break, continue and generation, the functions raise_exception and strftime_now, and a filter tojson that escapes
// nothing for HTML.
//
// [Parse] reads a template, [Template.Render] fills it in, [Chat] does so for a conversation. Values that are
// printed as JSON keep the order of their keys in an [Object], which [DecodeJSON] gives.
//
// What jinja2 has and this package lacks is refused with tensor.ErrUnsupported and its name, never rendered
// differently: other templates (include, import, extends, block), autoescape, some filters that make HTML, integers
// beyond 64 bits, powers of fractions. An error of Python is an error here, an [Error] with Python's name for it;
// its message may have other words. What generators and functions print as is refused too, as in Python it holds an
// address. A slice of a constant that has none, as in {{ 5[1:] }}, is an error at all times, where the
// optimizer of jinja2 makes it undefined.
//
// A template is foreign code. It reaches nothing but the values that it is given, and [Limits] bound its time, its
// memory and its recursion.
package template
