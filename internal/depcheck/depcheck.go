// Package depcheck holds what is true of the repository as a whole: which package may import which, that the tables
// of the program agree with each other, that documents link to files that exist. It has no code of its own.
package depcheck
