// Package publish publishes finished packages and pulls them again.
//
// [New] opens the store that a recipe's publish entry names, [All] publishes to several of them, all or nothing, and
// [Pull] pulls the package that a reference names to a directory. The kinds of places are one table; each is a package
// of its own below this one, and all implement package place.
package publish
