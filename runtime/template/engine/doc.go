// Package engine renders chat templates as the LLM engine of MNN does: byte for byte what the interpreter in its
// tokenizer writes, where that agrees with Jinja and where it does not. The interpreters of releases 3.5.0, 3.6.0 and
// 3.6.1 are the same.
//
// [Parse] reads a template, which fails only if the engine never ends or crashes; [Template.Render] renders a
// conversation.
//
// The engine has no errors: it skips whatever it does not know. If it would hang, run out of memory or crash, the error
// here is [ErrCrash]; if it reads undefined memory, so that its text is unknown, a tensor.ErrUnsupported; and a
// template.ErrLimit if the caller's limits are exceeded.
// docs/internals/engine-template.md lists the differences from Jinja; package lower writes templates that avoid them.
//
// The engine keeps one value for all names that do not exist. A template that sets an attribute of such a name changes
// it for every later rendering of the process; here for the rest of one call of Render only.
package engine
