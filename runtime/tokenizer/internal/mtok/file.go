package mtok

// File is a tokenizer.mtok, field by field in the order of the file.
type File struct {
	Special, Stop, Prefix []int32
	Normalizer            Normalizer
	PreTokenizer          PreTokenizer
	Model                 Model
	Decoder               Decoder
	Added                 []Added
	// Sections counts the optional parts that follow, from 0 to 5.
	Sections    int
	Template    string
	EOS         string
	Flags       uint8
	BOS         string
	PostProcess string // the program's bytes, count included; engines up to 3.6.1 do not read it
}

// Added is an added token.
type Added struct {
	ID                      int32
	Special, LStrip, RStrip bool
	Content                 string
}

// Tags of normalizers. The engine takes any other tag for none, without knowing the length of its payload.
const (
	NormNone      = 0
	NormEmpty     = 1 // NFKC of an older format, which has no table and does nothing
	NormPrepend   = 2
	NormReplace   = 3
	NormSequence  = 4
	NormBert      = 5 // does not strip accents, whatever Accents says
	NormTable     = 6
	NormBertTable = 7
	NormStrip     = 8 // since 3.6.0
)

// Tags of pre-tokenizers.
const (
	PreNone      = 0
	PreByteLevel = 1
	PreDigits    = 2
	PreMetaspace = 3
	PreSplit     = 4
	PreBert      = 5
	PreSequence  = 6
)

// Behaviours of a split; every other number is SplitRemoved too.
const (
	SplitIsolated           = 0
	SplitRemoved            = 1
	SplitMergedWithPrevious = 2
)

// Tags of models.
const (
	ModelBPE       = 0
	ModelWordPiece = 1
	ModelUnigram   = 2
)

// Tags of decoders.
const (
	DecByteLevel    = 0
	DecByteFallback = 1
	DecMetaspace    = 2
	DecWordPiece    = 3
	DecFuse         = 4
	DecReplace      = 5
	DecStrip        = 6
	DecSequence     = 7
)

// Normalizer is a normalizer; which fields count depends on the tag.
type Normalizer struct {
	Tag                            uint8
	Pattern                        string         // replace
	Content                        string         // replace, prepend
	Clean, Chinese, Accents, Lower bool           // bert
	Table                          []Substitution // table; bert with table, if Accents
	Left, Right                    bool           // strip
	Children                       []Normalizer   // sequence
}

// Substitution is what a table has for a code point; tables are sorted.
type Substitution struct {
	Char rune
	Text string
}

// PreTokenizer is a pre-tokenizer.
type PreTokenizer struct {
	Tag         uint8
	Flag        bool   // byte level: use the regex; digits: one by one; metaspace: prefix; split: invert
	Replacement string // metaspace
	Regex       string // split
	Behavior    uint8  // split
	Children    []PreTokenizer
}

// Model is a model with its vocabulary.
type Model struct {
	Tag          uint8
	ByteFallback bool    // BPE, where the engine ignores it, and Unigram
	ByteLevel    bool    // BPE: the model maps bytes to stand-ins
	Merges       []Merge // BPE, sorted by Left, then Right
	Unknown      string  // WordPiece
	Prefix       string  // WordPiece, of pieces that continue a word
	MaxBytes     int     // WordPiece: longer words are unknown
	UnknownID    int32   // Unigram
	Vocab        []Token // sorted, see SortVocab
}

// Token is an entry of a vocabulary.
type Token struct {
	Text  string
	ID    int32
	Score float64 // Unigram
}

// Merge is a pair of ids that becomes one token; the lowest rank is merged first.
type Merge struct{ Left, Right, Rank int32 }

// Decoder is a decoder.
type Decoder struct {
	Tag         uint8
	Pattern     string // replace
	Content     string // replace, strip; metaspace: replacement; WordPiece: prefix
	Flag        bool   // metaspace: prefix; WordPiece: clean up
	Start, Stop uint32 // strip
	Children    []Decoder
}
