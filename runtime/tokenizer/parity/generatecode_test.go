package parity

import (
	"fmt"
	"strings"
)

// code are lines of ten programming languages. In a line "$a", "$b" and "$C" stand for names, "$n" for a number and "$s"
// for a word in a string.
func (g *generator) code() {
	for _, l := range programs {
		lines := strings.Split(strings.TrimPrefix(l.text, "\n"), "\n--\n")
		g.fill(g.plain, "code-"+l.name, 150, func() string {
			var b strings.Builder
			for range g.between(1, 3) {
				a, c := pick(g, plainWords), pick(g, plainWords)
				b.WriteString(strings.NewReplacer(
					"$a", pick(g, []string{a, a, "i", "x", a + "_" + c, a + "Count"}),
					"$b", pick(g, []string{c, "j", "tmp", c + "s"}),
					"$C", strings.ToUpper(a[:1])+a[1:]+pick(g, []string{"", "Error", "Factory", "2"}),
					"$n", pick(g, []string{fmt.Sprint(g.n(10)), fmt.Sprint(g.n(5000)), "0x1F", "3.14", "1e-6", "-1"}),
					"$s", pick(g, []string{a, a + " " + c, "%d " + a + "\\n", "é" + a, "你好", "{" + c + "}"}),
				).Replace(pick(g, lines)))
				b.WriteString(pick(g, []string{"\n", "\n", "\n\n", ""}))
			}
			if g.chance(4) {
				return "    " + strings.ReplaceAll(b.String(), "\n", "\n    ")
			}
			return b.String()
		})
	}
}

var programs = []struct{ name, text string }{
	{"go", `
func $a($b []int, n int) (_ *$C, err error) {
	if err != nil {
		return nil, fmt.Errorf("$s: %w", err)
	}
	return &$C{$b: $n}, nil
}
--
for i := range $a { $b[i] += $a[i] << 3 & 0xff }
--
type $C[T any] struct {
	mu   sync.Mutex // guards $a
	$a map[string][]T ` + "`json:\"$b,omitempty\"`" + `
}
--
select {
case <-ctx.Done():
	return ctx.Err()
case $a := <-ch:
	fmt.Println("$s", $a)
}`},
	{"python", `
def $a(self, $b=None, *args, **kwargs):
    """$s."""
    return [x ** 2 for x in $b if x % $n == 0]
--
class $C(Exception):
    def __init__(self, $a: int = $n) -> None:
        super().__init__(f"$s {$a!r:>10}")
--
with open('$s', 'rb') as f:
	$a = f.read()
--
if $a is not None and $b != $n:  # $s
    $a, $b = $b, $a
else:
    raise ValueError("$s")
--
@property
async def $a(): await $b(lambda x: x[::-1])
--
>>> $a = {"$s": $n, 'k': (1, 2)}`},
	{"c", `
#include <stdio.h>
#define $C(x) ((x) * $n)
int main(int argc, char **argv) { return $a($b); }
--
for (size_t i = 0; i < n; ++i) $a[i] ^= ~$b[i] >> 2;
--
static inline uint32_t $a(const struct $b *p) {
    return p->$a ? p->$b[0] : $nUL;
}
--
/* $s */
printf("$s", *$a++); // $n`},
	{"cpp", `
template <typename T, std::size_t N>
auto $a(std::vector<T>&& $b) -> decltype($b) { return std::move($b); }
--
class $C final : public Base<$n> {
 public:
  explicit $C(int $a) noexcept : $a_($a) {}
  ~$C() override = default;
};
--
auto f = [&](auto&& x) { return x <=> $n; };
--
std::cout << "$s" << std::endl;`},
	{"rust", `
pub fn $a<'a, T: Clone>(&'a mut self, $b: &[u8]) -> Result<Vec<T>, Box<dyn Error>> {
    let $b = $b.iter().map(|x| x.wrapping_mul($n)).collect::<Vec<_>>();
    Ok($b?)
}
--
#[derive(Debug, Clone)]
struct $C { $a: Option<String>, $b: u64 }
--
match $a {
    Some(x) if x > $n => println!("$s {}", x),
    _ => unreachable!(),
}`},
	{"java", `
public static void main(String[] args) throws $C {
    System.out.println("$s" + $a.get$C());
}
--
List<Map<String, Integer>> $a = new ArrayList<>();
$a.stream().filter(x -> x != null).forEach(System.out::println);
--
/** @param $a $s */
@Override protected int $a(final int $b) { return $b >>> $n; }`},
	{"javascript", `
const $a = async ({ $b, ...rest }) => await fetch(` + "`/api/${$b}?n=$n`" + `);
--
export default function $C() { return <div className="$s">{$a ?? '$b'}</div>; }
--
if ($a === undefined || !$b) { throw new $C('$s'); }
--
let $a = $b.map(x => x**2).filter(Boolean)?.[0] ?? $n; // $s
--
document.querySelector('#$a > .$b').onclick = () => alert("$s");`},
	{"sql", `
SELECT $a, COUNT(*) AS n FROM $b WHERE $a >= $n AND name LIKE '%$s%' GROUP BY $a ORDER BY 2 DESC LIMIT 10;
--
INSERT INTO $a ($b, ts) VALUES ('$s', NOW()), (NULL, '2024-01-01'); -- $n
--
CREATE TABLE IF NOT EXISTS "$a" (id BIGSERIAL PRIMARY KEY, $b VARCHAR(255) NOT NULL DEFAULT '');`},
	{"shell", `
#!/usr/bin/env bash
set -euo pipefail
--
for f in *.$a; do mv -- "$f" "${f%.$a}.$b"; done
--
grep -rn --include='*.$a' "$s" . | awk -F: '{print $1}' | sort | uniq -c
--
$a=$($b --n=$n 2>/dev/null) || exit 1
--
curl -fsSL "https://example.org/$a" | tar -xz -C /tmp && echo "$s"`},
	{"html", `
<div class="$a $b" id='$s' data-n="$n">
  <p>&nbsp;&lt;$a&gt; &amp; &#169;</p>
</div>
--
<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>$s</title></head>
--
<!-- $s --><a href="/$a?x=1&amp;y=$n">$b</a><br/>
--
<style>.$a:hover { color: #ff00$n; margin: 0 auto !important; }</style>`},
	{"yaml", `
$a:
  - name: "$s"
    $b: [$n, 2, 3]
  - &anchor !!str $n
--
# $s
version: "3.$n"
services: { $a: { image: $b:latest } }`},
	{"haskell", `
$a :: (Monad m, Show a) => a -> m [Int]
$a x = do
  let $b = map (\y -> y * $n) . filter even $ [1..]
  return $! foldr (:) [] $b -- $s
--
data $C = $C { $b :: !Int } deriving (Eq, Ord)`},
}
