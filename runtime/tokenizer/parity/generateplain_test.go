package parity

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// solid are languages without spaces between words; their pieces are runs of letters.
var solid = []string{"zh", "zht", "yue", "ja", "th", "lo", "km", "my", "bo", "dz"}

// language is what languages.txt has of one.
type language struct {
	name      string
	sentences []string
	words     []string
}

func (g *generator) languages(lines []string) (list []*language) {
	for _, l := range lines {
		name, sentence, _ := strings.Cut(l, "\t")
		if len(list) == 0 || list[len(list)-1].name != name {
			list = append(list, &language{name: name})
		}
		x := list[len(list)-1]
		x.sentences = append(x.sentences, sentence)
		if !slices.Contains(solid, name) {
			x.words = append(x.words, strings.Fields(sentence)...)
			continue
		}
		r := []rune(sentence)
		for i := 0; i < len(r); {
			end := min(len(r), i+g.between(2, 7))
			for end < len(r) && (unicode.IsMark(r[end]) || unicode.IsMark(r[end-1])) {
				end++
			}
			x.words = append(x.words, string(r[i:end]))
			i = end
		}
	}
	return list
}

// sentences are texts of people, and chats among them.
func (g *generator) sentences(lines []string) {
	all := g.languages(lines)
	for _, l := range all {
		space := " "
		if slices.Contains(solid, l.name) {
			space = ""
		}
		class := "text-" + l.name
		for _, s := range l.sentences {
			g.plain(class, s)
		}
		phrase := func(a, b int) string {
			var w []string
			for range g.between(a, b) {
				w = append(w, pick(g, l.words))
			}
			return strings.Join(w, space)
		}
		g.fill(g.plain, class, 52, func() string {
			switch g.n(12) {
			case 0:
				return pick(g, l.sentences) + pick(g, []string{" ", "\n", "\n\n", "  "}) + pick(g, l.sentences)
			case 1:
				return pick(g, l.sentences) + " " + pick(g, l.sentences) + "\n\n" + phrase(4, 9) + "\n"
			case 2:
				return phrase(1, 2)
			case 3:
				return " " + phrase(2, 6)
			case 4:
				if l.name == "ka" || l.name == "chr" { // their capitals are not written this way
					return phrase(3, 8)
				}
				return strings.ToUpper(phrase(2, 8))
			case 5:
				return fmt.Sprintf("%d. %s (%s): %d%%", g.between(1, 40), phrase(1, 4), phrase(1, 2), g.n(101))
			case 6:
				return "- " + phrase(1, 5) + "\n- " + phrase(1, 5) + "\n"
			case 7:
				return "\"" + phrase(2, 6) + "\" " + phrase(1, 4) + pick(g, []string{"!", "?", "...", " …", "?!", ";"})
			default:
				return phrase(3, 14)
			}
		})
	}
	g.fill(g.plain, "mixed", 400, func() string { // several languages in one text
		var s []string
		for range g.between(2, 4) {
			s = append(s, pick(g, pick(g, all).sentences))
		}
		return strings.Join(s, pick(g, []string{" ", "\n", " / ", " — ", "\n\n"}))
	})
	g.fill(g.plain, "chat", 500, func() string {
		var b strings.Builder
		l := pick(g, all)
		for i := range g.between(1, 4) {
			b.WriteString(strings.NewReplacer("$t", pick(g, l.sentences), "$n", pick(g, names), "$h", fmt.Sprintf("%02d:%02d", g.n(24), g.n(60))).Replace(
				pick(g, []string{"User: $t\n", "**$n**: $t\n\n", "[$h] <$n> $t\n", "> $t\n", "### $n\n$t\n\n", "@$n $t\n", "$n ($h): $t\n"})))
			if i > 0 && g.chance(2) {
				b.WriteString(pick(g, commonEmoji) + pick(g, []string{"\n", " lol\n", " :-)\n", " thx!!\n", " ;)\n"}))
			}
		}
		return b.String()
	})
}

var names = []string{"Anna", "Björn", "Chloé", "Dmitri", "Eve", "王伟", "佐藤", "김민준", "Aïsha", "José", "user_42", "assistant", "Zoë", "ali"}

// documents are what is neither prose nor a programming language.
func (g *generator) documents() {
	word := func() string { return pick(g, plainWords) }
	words := func(a, b int) string {
		var w []string
		for range g.between(a, b) {
			w = append(w, word())
		}
		return strings.Join(w, " ")
	}
	g.fill(g.plain, "markdown", 400, func() string {
		switch g.n(8) {
		case 0:
			return strings.Repeat("#", g.between(1, 6)) + " " + words(1, 5) + "\n\n" + words(5, 14) + ".\n"
		case 1:
			return "* " + words(1, 6) + "\n  * **" + words(1, 2) + "** and _" + word() + "_\n  * `" + word() + "()`\n"
		case 2:
			return fmt.Sprintf("[%s](https://example.org/%s#%s) ![%s](img/%s.png \"%s\")", words(1, 3), word(), word(), word(), word(), words(1, 2))
		case 3:
			return "```" + pick(g, []string{"go", "python", "", "sh", "json"}) + "\n" + word() + "(" + word() + ")\n```\n"
		case 4:
			return "> " + words(3, 9) + "\n>\n> -- " + word() + "\n\n---\n"
		case 5:
			return fmt.Sprintf("%d. [ ] %s\n%d. [x] ~~%s~~\n", g.n(20), words(1, 4), g.n(20), words(1, 3))
		case 6:
			return words(2, 6) + "[^" + fmt.Sprint(g.n(30)) + "] " + words(1, 5) + "  \n" + words(1, 4) + "<br/>\n"
		default:
			return "| " + word() + " | " + word() + " |\n| --- | ---: |\n| " + word() + " | " + g.number() + " |\n| `" + word() + "` | " + g.number() + " |\n"
		}
	})
	g.fill(g.plain, "table", 250, func() string {
		var b strings.Builder
		sep, cols := pick(g, []string{"\t", ",", ";", " | ", "   "}), g.between(2, 6)
		for range g.between(2, 5) {
			for c := range cols {
				if c > 0 {
					b.WriteString(sep)
				}
				if g.chance(2) {
					b.WriteString(g.number())
				} else {
					b.WriteString(word())
				}
			}
			b.WriteString(pick(g, []string{"\n", "\n", "\r\n"}))
		}
		return b.String()
	})
	g.fill(g.plain, "latex", 300, func() string {
		switch g.n(5) {
		case 0:
			return fmt.Sprintf("$\\frac{%c^{%d}}{\\sqrt{%c_{%d}}} \\leq \\sum_{i=0}^{n} %c_i$", 'a'+g.n(26), g.n(10), 'a'+g.n(26), g.n(10), 'a'+g.n(26))
		case 1:
			return "\\section{" + words(1, 3) + "}\n\\label{sec:" + word() + "} " + words(3, 8) + "~\\cite{" + word() + "2024}.\n"
		case 2:
			return fmt.Sprintf("\\begin{equation}\n  \\int_{%d}^{\\infty} e^{-%cx^2}\\,dx = \\%s{%d}\n\\end{equation}\n", g.n(10),
				'a'+g.n(26), pick(g, []string{"alpha", "mathbb", "hat", "vec"}), g.n(100))
		case 3:
			return "\\begin{itemize}\n\\item " + words(1, 4) + "\n\\item \\textbf{" + word() + "} \\% \\& \\_ \\$\n\\end{itemize}"
		default:
			return fmt.Sprintf("\\left( \\matrix{%d & %d \\cr %d & %d} \\right) \\times 10^{-%d}", g.n(100), g.n(100), g.n(100), g.n(100), g.n(30))
		}
	})
	g.fill(g.plain, "number", 500, g.number)
	g.fill(g.plain, "number", 100, func() string {
		return g.number() + pick(g, []string{" + ", " - ", "*", "/", " × ", " = ", " ≈ ", ", ", "; ", "–", ":", " to "}) + g.number() +
			pick(g, []string{"", " kg", "%", " km/h", " °C", " €", " m²", "th", " MB", "x"})
	})
	g.fill(g.plain, "date", 350, func() string {
		y, m, d, h, mi, s := g.between(1800, 2100), g.between(1, 12), g.between(1, 28), g.n(24), g.n(60), g.n(60)
		month := []string{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}[m-1]
		return strings.NewReplacer("YYYY", fmt.Sprint(y), "MM", fmt.Sprintf("%02d", m), "DD", fmt.Sprintf("%02d", d), "hh",
			fmt.Sprintf("%02d", h), "mm", fmt.Sprintf("%02d", mi),
			"ss", fmt.Sprintf("%02d", s), "$M", fmt.Sprint(m), "$D", fmt.Sprint(d), "$h", fmt.Sprint(h), "NAME", month).Replace(pick(g, []string{
			"YYYY-MM-DDThh:mm:ssZ", "YYYY-MM-DD hh:mm", "DD.MM.YYYY", "$M/$D/YYYY", "$D NAME YYYY", "NAME $D, YYYY at $h:mm", "$hhmm", "YYYY年$M月$D日", "YYYY년 $M월 $D일",
			"am $D. $M. um $h.mm Uhr", "[hh:mm:ss.000] ", "the $Dth of NAME YYYY", "YYYY/MM/DD", "$h:mm pm"}))
	})
	host := func() string {
		return word() + pick(g, []string{".example.org", ".example.com", "-x.example.net", ".test", ".co.example"})
	}
	g.fill(g.plain, "url", 300, func() string {
		return pick(g, []string{"https://", "http://", "ftp://", "www.", "git@", "ws://"}) + host() +
			pick(g, []string{"", ":8080", ":443"}) + "/" + word() + "/" + word() +
			pick(g, []string{"", ".html", "?q=" + word() + "&p=" + fmt.Sprint(g.n(99)), "#" + word(), "/%20" + word() + "%2F", "/~" + word(), ".tar.gz"})
	})
	g.fill(g.plain, "email", 120, func() string {
		return pick(g, []string{"", "mailto:", "<", "To: "}) + word() + pick(g, []string{".", "_", "+", "-", ""}) + word() + fmt.Sprint(g.n(99)) + "@" + host()
	})
	g.fill(g.plain, "path", 150, func() string {
		return pick(g, []string{"/usr/lib/", "~/", "./", "../", "C:\\Users\\", "\\\\srv\\", "/tmp/"}) + word() +
			pick(g, []string{"/", "\\", "_", "-"}) + word() + pick(g, []string{".txt", ".go", ".tar.gz", "", ".JPG", ".d/"})
	})
	g.fill(g.plain, "indent", 300, func() string {
		var b strings.Builder
		unit := pick(g, []string{" ", "  ", "   ", "    ", "\t", "        ", "\t  "})
		for range g.between(1, 6) {
			b.WriteString(strings.Repeat(unit, g.n(6)) + words(0, 4) + pick(g, []string{"\n", "\n", "\n\n", "\r\n", " \n", "\n\n\n"}))
		}
		return b.String()
	})
	g.fill(g.plain, "json", 400, func() string {
		return g.json(g.between(1, 3), pick(g, []string{"", "  ", "\t", "    "}), "")
	})
	for _, e := range commonEmoji {
		g.plain("emoji", e)
		g.plain("emoji", words(1, 3)+" "+e)
		g.plain("emoji", e+e+e+" "+words(1, 4)+e)
	}
	g.fill(g.plain, "emoji", 250, func() string {
		return words(1, 4) + pick(g, []string{"", " "}) + pick(g, commonEmoji) + pick(g, []string{"", " ", "!"}) +
			pick(g, commonEmoji) + pick(g, []string{"", "\n", " " + words(1, 3)})
	})
	g.fill(g.plain, "english", 500, func() string { // contractions and quotes as people type them
		return words(0, 4) + pick(g, []string{" ", ""}) +
			pick(g, []string{"don't", "I'm", "you're", "they've", "she'll", "he'd", "it's", "WE'RE", "Don't", "CAN'T", "o'clock",
				"rock'n'roll", "y'all", "the dogs'", "’tis", "don’t", "it’s"}) +
			" " + words(1, 5) + pick(g, []string{".", "!", "?", "...", ", " + words(1, 3) + "; " + words(1, 2) + ":", " (" + words(1, 3) + ")", "--" + word(), "!!!"})
	})
	g.fill(g.plain, "identifier", 250, func() string {
		a, b, c := word(), word(), word()
		up := func(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
		return pick(g, []string{a + up(b) + up(c), up(a) + up(b), a + "_" + b + "_" + c, strings.ToUpper(a + "_" + b), a + "-" + b,
			"__" + a + "__", a + "." + b + "()", "$" + a, "@" + a + "." + b, a + "::" + b + "<" + up(c) + ">", "--" + a + "-" + b + "=" +
				c, "&" + a + "->" + b, a + fmt.Sprint(g.n(300)) + b, "#" + a + up(b)})
	})
}

func (g *generator) number() string {
	switch g.n(12) {
	case 0:
		return fmt.Sprint(g.n(10))
	case 1:
		return fmt.Sprint(g.n(100000))
	case 2:
		return fmt.Sprintf("%d.%02d", g.n(1000), g.n(100))
	case 3:
		return fmt.Sprintf("%d,%03d,%03d", g.n(1000), g.n(1000), g.n(1000))
	case 4:
		return fmt.Sprintf("%d.%03d,%02d", g.n(1000), g.n(1000), g.n(100))
	case 5:
		return fmt.Sprintf("0x%x", g.next()>>g.n(60))
	case 6:
		return fmt.Sprintf("%d.%de-%d", g.n(10), g.n(100000), g.n(40))
	case 7:
		return fmt.Sprintf("-%d", g.n(1000))
	case 8:
		return fmt.Sprintf("$%d.%02d", g.n(10000), g.n(100))
	case 9:
		return fmt.Sprint(g.next())
	case 10:
		return fmt.Sprintf("+%d (%d) %03d-%04d", g.between(1, 99), g.n(1000), g.n(1000), g.n(10000))
	default:
		return fmt.Sprintf("%d.%d.%d.%d", g.n(256), g.n(256), g.n(256), g.n(256))
	}
}

func (g *generator) json(depth int, indent, at string) string {
	if depth == 0 {
		return pick(g, []string{"null", "true", "false", g.number(), "\"" + pick(g, plainWords) + " " + pick(g, plainWords) + "\"",
			"\"\\u00e9\\n\"", "[]", "{}", "\"" + pick(g, names) + "\""})
	}
	nl, colon, comma, in := "", ":", ",", ""
	if indent != "" {
		nl, colon, in = "\n", ": ", at+indent
	}
	var parts []string
	for range g.between(1, 3) {
		parts = append(parts, in+"\""+pick(g, plainWords)+"\""+colon+g.json(g.n(depth), indent, in))
	}
	end := ""
	if indent != "" {
		end = at
	}
	return "{" + nl + strings.Join(parts, comma+nl) + nl + end + "}"
}

var plainWords = strings.Fields(`the of and to in is that for it was on are as with his they at be this from have or by one had not but what all were
when we there can an your which their said if will each about how up out them then she many some so these would other into has more her two like him
see time could make than first been its who now people my made over did down only way find use may water long little very after words called just where
most know get through back much before go good new write our used me man too any day same right look think also around another came come work three
word must because does part even place well such here take why things help put years different away again off went old number great tell men say small
every found still between name should home big give air line set own under read last never us left end along while might next sound below saw something
thought both few those always looked show large often together asked house world going want school important until form food keep children feet land side
without boy once animals life enough took sometimes four head above kind began almost live page got earth need far hand high year mother light parts
country father let night following picture being study second eyes soon times story boys since white days ever paper hard near sentence better best across
during today others however sure means knew try told young miles sun ways thing whole hear example heard several change answer room sea against top turned
learn point city play toward five using himself usually tokenizer embedding quantization throughput asynchronous initialization counterclockwise`)

// commonEmoji are those that people send most, the joined and coloured ones among them.
var commonEmoji = strings.Fields(`😂 ❤️ 🤣 👍 😭 🙏 😘 🥰 😍 😊 🎉 😁 💕 🥺 😅 🔥 ☺️ 🤦 ♥️ 🤷 🙄 😆 🤗 😉 🎂 🤔 👏 🙂 😳 🥳 😎 👌 💜 😔 💪 ✨ 💖 👀 😋 😏 😢 👉 💗 😩 💯 🌹
💞 🎈 💙 😃 😡 💐 😜 🙈 🤞 😄 🤤 🙌 🤪 ❣️ 😀 💋 💀 👇 💔 😌 💓 🤩 🙃 😬 😱 😴 🤭 😐 🌞 😒 😇 🌸 😈 🎶 ✌️ 🎊 🥵 😞 💚 ☀️ 🖤 💰 😚 👑 🎁 💥 🙋 ☹️ 😑 🥴 👈 💩 ✅ 👋 🤮 😤 🤢 🌟 ❗ 😥 🌈 💛 😝
👍🏽 👋🏻 🙏🏿 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🤦‍♀️ 🤷🏾‍♂️ 🧑🏿‍🚀 ❤️‍🔥 👩‍❤️‍👨 🇩🇪 🇯🇵 🇧🇷 🇺🇸 🇮🇳 1️⃣ #️⃣ ⚠️ ➡️ ✈️ ☎️ ™️ ©️ 🅰️`)
