package verify

// hardStrings exercise what tokenizers get wrong: scripts, spaces, digits, contractions, code, emoji, control
// characters, and text that looks like a special token. All are in composed form where one exists; what an
// engine makes of decomposed text is counted by the limit on hard strings as a whole.
var hardStrings = []string{
	" ", "  ", "   leading and trailing   ", "tab\tseparated\tvalues", "line\nbreak", "line\r\nbreak", "\n\n\n", "a\n \n b", "\u00a0no-break\u00a0space", "\u3000ideographic\u3000space",
	"0", "12", "123", "1234567890", "3.14159", "1,234,567.89", "2024-02-29T12:34:56Z", "1e-6", "0x7fffffff", "١٢٣", "१२३", "Ⅻ", "½", "x²",
	"don't", "DON'T", "we're they've I'll he'd I'm it's", "rock'n'roll", "'quoted'", "\u2019s", "o'clock", "'S 'T 'RE",
	"The quick brown fox jumps over the lazy dog.", "ALL CAPS", "camelCaseWords", "snake_case_words", "kebab-case-words", "x", "pneumonoultramicroscopicsilicovolcanoconiosis",
	"naïve café", "Ångström", "Straße", "smørrebrød", "żółć", "Đặng", "İstanbul", "ﬁne", "e\u0301", "o\u0308",
	"Привет, мир!", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "你好，世界！", "こんにちは世界", "안녕하세요 세계", "გამარჯობა", "Բարեւ", "ሰላም", "ᠮᠣᠩᠭᠣᠯ", "ខ្មែរ", "བོད་སྐད",
	"🙂", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇯🇵", "❤️", "a🙂b", "🙂🙂🙂", "⌚️", "𝒜𝓁𝓅𝒽𝒶", "𐍈",
	"func main() { fmt.Println(\"hi\") }", "for (int i = 0; i < n; ++i) a[i] += b[i];", "if x != y and not z:\n    return None", "<div class=\"a\">&nbsp;</div>", "SELECT * FROM t WHERE a >= 1 -- c", "{\"k\": [1, 2.5, null, true]}", "\\frac{a}{b} \\sum_{i=0}^{n}", "#!/bin/sh\nset -eu\n", "    indented\n\tand tabbed", "a==b&&c||!d", "...", "!!!???", "-->", "//////", "********", "----------------", "________",
	"\x00", "\x01\x02\x1f", "\x7f", "\u0085", "\u200b", "\u200d", "\ufeff", "\u2028", "a\u0000b", "\u202eabc",
	"<|endoftext|>", "<|im_start|>user\nhi<|im_end|>", "<|im_start|", "<s>", "</s>", "[INST] x [/INST]", "<unk>", "text<|im_end|>text", " <|im_end|> ", "<|begin_of_text|>",
	"https://example.org/a/b?c=d&e=f#g", "user@example.org", "C:\\Users\\x", "~/.config", "+49 (0)30 123-456", "$1.00 €2 £3 ¥4", "100%", "50°C", "™®©", "«»„“”‘’", "–—−", "→⇒↔", "∀x∈ℝ: x²≥0", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "                                                                ",
}
