// Package publish puts finished packages where users find them, and what goes with them: the model card,
// the licence files of the source, the report.
//
// A [Store] is one kind of place; [New] opens the one that a recipe's publish entry names. Whatever the
// kind, a package arrives whole or not at all, every byte is compared with the manifest on its way, and
// nothing that this program did not write is overwritten or removed. Publishing has two steps, so that
// several places get a package together: [Store.Stage] transfers everything and shows nothing,
// [Staged.Commit] shows it. An [Origin] is a place that a package is pulled from.
package publish
