// Package watch runs recipes for new revisions of Hugging Face repositories, each revision exactly once. [ReadList]
// reads the repositories and their recipes; a [Watcher] asks the hub, and calls a function to run a recipe.
//
// What was seen and done is kept in a state file, replaced as a whole before and after every run, with a lock beside it
// that keeps a second watcher away. A run that ended with its process is found there and is run again by the next
// watcher, before anything else: the stages of a run go on where they were, so it is still the same one.
//
// A run that fails is not repeated, because the same bytes would fail in the same way, unless the network or the hub
// was at fault, the text of the recipe has changed, or the user asks for it. A new commit replaces one that failed.
package watch
