// Package publish puts finished packages where users find them, and brings them back.
//
// [New] opens the store that a recipe's publish entry names, [All] publishes to several of them, all or nothing, and
// [Pull] brings the package that a reference names to a directory. What kinds of places there are is one table; each is a
// package of its own below this one, and all speak package place.
package publish
