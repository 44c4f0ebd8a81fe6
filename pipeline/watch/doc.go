// Package watch runs recipes for new revisions of Hugging Face repositories, each revision exactly once. [ReadList]
// reads the repositories and their recipes; a [Watcher] asks the hub, and calls a function to run a recipe.
//
// A state file, replaced atomically before and after every run, records the revisions; a lock next to it excludes a
// second watcher. A run that ended with its process is found there and run again by the next watcher before anything
// else: the stages of a run resume, so it is still the same one.
//
// A failed run is not repeated, because the same bytes would fail in the same way, unless the network or the hub caused
// the failure, the text of the recipe has changed, or the user asks for it. A new commit replaces one that failed.
package watch
