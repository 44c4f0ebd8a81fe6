// Package recipes reads recipes: YAML files that describe a package and the checkpoint it is made from.
//
// Call [Load] or [LoadFile] first. The keys version, name, model, target, limits and variants belong to
// this package; every other top-level key is a section that belongs to the stage of its name, which
// decodes it with [Section.Decode] into a struct with its defaults. [Recipe.Expand] turns the
// variants into recipes of their own, [EffectiveJSON] prints a recipe with all defaults filled in, and
// [Schema] describes the format to editors.
//
// Loading is strict, because a key that is silently ignored changes results: unknown and repeated keys,
// wrong types, numbers in place of strings, tags, anchors, aliases and merge keys, several documents
// in one file and text that two YAML readers interpret differently are errors, each an [*Error]
// with file, line and column. Documents are bounded in size, depth and number of values.
package recipes
