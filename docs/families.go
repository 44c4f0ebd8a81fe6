// Package docs holds the documents that the program prints.
package docs

import _ "embed"

//go:generate go test ../internal/depcheck -count=1 -run TestCLIDoc -update

// Families is families.json, the table behind families.md: what is known of every model type, and what was measured.
//
//go:embed families.json
var Families []byte
