package regex

import (
	"strings"
	"sync"
	"unicode"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
)

// longCategory spells out the general categories, as \p{..} may do.
var longCategory = map[string]string{
	"control": "Cc", "format": "Cf", "privateuse": "Co", "surrogate": "Cs",
	"letter": "L", "lowercaseletter": "Ll", "modifierletter": "Lm", "otherletter": "Lo", "titlecaseletter": "Lt", "uppercaseletter": "Lu",
	"mark": "M", "combiningmark": "M", "spacingmark": "Mc", "enclosingmark": "Me", "nonspacingmark": "Mn",
	"number": "N", "decimalnumber": "Nd", "letternumber": "Nl", "othernumber": "No",
	"punctuation": "P", "connectorpunctuation": "Pc", "dashpunctuation": "Pd", "closepunctuation": "Pe", "finalpunctuation": "Pf",
	"initialpunctuation": "Pi", "otherpunctuation": "Po", "openpunctuation": "Ps",
	"symbol": "S", "currencysymbol": "Sc", "modifiersymbol": "Sk", "mathsymbol": "Sm", "othersymbol": "So",
	"separator": "Z", "lineseparator": "Zl", "paragraphseparator": "Zp", "spaceseparator": "Zs",
}

// category is a general category with what is younger than Go's tables.
func category(name string) chars.Set {
	tables := []*unicode.RangeTable{unicode.Categories[name]}
	for key, t := range chars.Younger {
		if key == name || len(name) == 1 && len(key) == 2 && key[0] == name[0] {
			tables = append(tables, t)
		}
	}
	set := chars.SetOf(tables...)
	// This mark has changed its category.
	moved := chars.Set{{0x1171E, 0x1171E}}
	switch name {
	case "Mn":
		set = set.Intersect(moved.Negate())
	case "Mc":
		set = set.Union(moved)
	}
	return set
}

// assigned are the code points that have a general category.
var assigned = sync.OnceValue(func() chars.Set {
	var all chars.Set
	for _, name := range []string{"L", "M", "N", "P", "S", "Z", "Cc", "Cf", "Co", "Cs"} {
		all = all.Union(category(name))
	}
	return all
})

// alphabetic is the derived property.
var alphabetic = sync.OnceValue(func() chars.Set {
	return category("L").Union(category("Nl")).Union(chars.SetOf(unicode.Other_Alphabetic, youngerAlphabetic))
})

// youngerAlphabetic are the marks that are Alphabetic in Unicode 16 and not in Go's tables.
var youngerAlphabetic = chars.Ranges(
	0x363, 0x36F, 0x897, 0x897, 0x1DD3, 0x1DE6, 0x10D69, 0x10D69, 0x10EFC, 0x10EFC, 0x113B8, 0x113C0, 0x113C2, 0x113C2,
	0x113C5, 0x113C5, 0x113C7, 0x113CA, 0x113CC, 0x113CD, 0x1611E, 0x1612E)

// Word is \w as Unicode has it.
func Word() chars.Set { return word() }

var word = sync.OnceValue(func() chars.Set {
	return alphabetic().Union(category("M")).Union(category("Nd")).Union(category("Pc"))
})

// bareWord is \w outside of a class, and what \b goes by: Oniguruma counts the superscript digits and the fractions of Latin-1
// in there, and nowhere else.
var bareWord = sync.OnceValue(func() chars.Set {
	return Word().Union(chars.Set{{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}})
})

// propertySets are the sets of \p{..} and of [[:..:]] that have a name of their own, in small letters.
var propertySets = map[string]func() chars.Set{
	"any":      func() chars.Set { return chars.Set{{0, unicode.MaxRune}} },
	"ascii":    func() chars.Set { return chars.Set{{0, 0x7F}} },
	"assigned": assigned,
	"c":        others,
	"cn":       func() chars.Set { return assigned().Negate() },
	"lc":       func() chars.Set { return category("Lu").Union(category("Ll")).Union(category("Lt")) },

	"alnum": func() chars.Set { return alphabetic().Union(category("Nd")) },
	"alpha": alphabetic,
	"blank": func() chars.Set { return category("Zs").Union(chars.Set{{'\t', '\t'}}) },
	"cntrl": func() chars.Set { return category("Cc") },
	"digit": func() chars.Set { return category("Nd") },
	"graph": func() chars.Set {
		return chars.SetOf(unicode.White_Space, unicode.Cc, unicode.Cs).Union(assigned().Negate()).Negate()
	},
	"lower":  func() chars.Set { return category("Ll").Union(chars.SetOf(unicode.Other_Lowercase)) },
	"space":  func() chars.Set { return chars.SetOf(unicode.White_Space) },
	"upper":  func() chars.Set { return category("Lu").Union(chars.SetOf(unicode.Other_Uppercase)) },
	"word":   Word,
	"xdigit": func() chars.Set { return chars.Set{{'0', '9'}, {'A', 'F'}, {'a', 'f'}} },
}

// others is the category C. That of package unicode includes code points that Unicode 15 leaves unassigned, some of which
// are letters now.
func others() chars.Set {
	set := assigned().Negate()
	for _, name := range []string{"Cc", "Cf", "Cs", "Co"} {
		set = set.Union(category(name))
	}
	return set
}

// propertyAlias are second names of propertySets.
var propertyAlias = map[string]string{
	"alphabetic": "alpha", "lowercase": "lower", "uppercase": "upper", "whitespace": "space", "unassigned": "cn", "other": "c", "casedletter": "lc",
}

// property is the set that a name within \p{..} stands for: a category, a script or a property. Upper and lower case,
// spaces, underscores and hyphens do not count.
func property(name string) (chars.Set, bool) {
	key := propertyKey(name)
	if long, ok := propertyAlias[key]; ok {
		key = long
	}
	if set, ok := propertySets[key]; ok {
		return set(), true
	}
	if short, ok := longCategory[key]; ok {
		return category(short), true
	}
	for short := range unicode.Categories {
		if len(short) <= 2 && strings.ToLower(short) == key {
			return category(short), true
		}
	}
	for script, t := range unicode.Scripts {
		if strings.ToLower(strings.ReplaceAll(script, "_", "")) == key {
			return chars.SetOf(t, chars.Younger[script]), true
		}
	}
	return nil, false
}

func propertyKey(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "_", "", "-", "").Replace(name))
}
