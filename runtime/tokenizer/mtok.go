package tokenizer

// mtok is a tokenizer.mtok, field by field in the order of the file: parsing and marshalling give the same
// bytes.
type mtok struct {
	Special, Stop, Prefix []int32
	Normalizer            normNode
	PreTokenizer          preNode
	Model                 modelNode
	Decoder               decNode
	Added                 []mtokAdded
	// Sections counts the optional parts that follow, from 0 to 5.
	Sections    int
	Template    string
	EOS         string
	Flags       uint8
	BOS         string
	PostProcess string // the program's bytes, count included; engines up to 3.6.1 do not read it
}

type mtokAdded struct {
	ID                      int32
	Special, LStrip, RStrip bool
	Content                 string
}

// Tags of normalizers. The engine takes any other tag for none, without knowing the length of its payload.
const (
	normNone      = 0
	normEmpty     = 1 // NFKC of an older format, which has no table and does nothing
	normPrepend   = 2
	normReplace   = 3
	normSequence  = 4
	normBert      = 5 // does not strip accents, whatever Accents says
	normTable     = 6
	normBertTable = 7
	normStrip     = 8 // since 3.6.0
)

// Tags of pre-tokenizers.
const (
	preNone      = 0
	preByteLevel = 1
	preDigits    = 2
	preMetaspace = 3
	preSplit     = 4
	preBert      = 5
	preSequence  = 6
)

// Behaviours of a split; every other number is splitRemoved too.
const (
	splitIsolated           = 0
	splitRemoved            = 1
	splitMergedWithPrevious = 2
)

// Tags of models.
const (
	modelBPE       = 0
	modelWordPiece = 1
	modelUnigram   = 2
)

// Tags of decoders.
const (
	decByteLevel    = 0
	decByteFallback = 1
	decMetaspace    = 2
	decWordPiece    = 3
	decFuse         = 4
	decReplace      = 5
	decStrip        = 6
	decSequence     = 7
)

// normNode is a normalizer; which fields count depends on the tag.
type normNode struct {
	Tag                            uint8
	Pattern                        string         // replace
	Content                        string         // replace, prepend
	Clean, Chinese, Accents, Lower bool           // bert
	Table                          []substitution // table; bert with table, if Accents
	Left, Right                    bool           // strip
	Children                       []normNode     // sequence
}

// substitution is what a table has for a code point; tables are sorted.
type substitution struct {
	Char rune
	Text string
}

// preNode is a pre-tokenizer.
type preNode struct {
	Tag         uint8
	Flag        bool   // byte level: use the regex; digits: one by one; metaspace: prefix; split: invert
	Replacement string // metaspace
	Regex       string // split
	Behavior    uint8  // split
	Children    []preNode
}

// modelNode is a model with its vocabulary.
type modelNode struct {
	Tag          uint8
	ByteFallback bool         // BPE, where the engine ignores it, and Unigram
	ByteLevel    bool         // BPE: the model maps bytes to stand-ins
	Merges       []mergeEntry // BPE, sorted by Left, then Right
	Unknown      string       // WordPiece
	Prefix       string       // WordPiece, of pieces that continue a word
	MaxBytes     int          // WordPiece: longer words are unknown
	UnknownID    int32        // Unigram
	Vocab        []vocabEntry // sorted, see sortedVocab
}

type vocabEntry struct {
	Token string
	ID    int32
	Score float64 // Unigram
}

type mergeEntry struct{ Left, Right, Rank int32 }

// decNode is a decoder.
type decNode struct {
	Tag         uint8
	Pattern     string // replace
	Content     string // replace, strip; metaspace: replacement; WordPiece: prefix
	Flag        bool   // metaspace: prefix; WordPiece: clean up
	Start, Stop uint32 // strip
	Children    []decNode
}
