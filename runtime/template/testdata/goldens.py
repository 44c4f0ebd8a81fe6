"""Renders templates with transformers' own environment and writes what came out to goldens.json.

    python goldens.py
"""

import datetime
import json
import os

import jinja2
import transformers.utils.chat_template_utils as chat


class Now(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(2026, 3, 5, 7, 8, 9, 12345)


chat.datetime = Now

VALUES = {
    "messages": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": " Hi "},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": " 2+2? "},
    ],
    "tools": [{"name": "f", "p": {"z": 1, "a": [1, 2.5, None, True, "é<&>'\""]}}],
    "n": 7, "f": 2.5, "t": True, "none_value": None, "s": "Hello World", "u": "Ünïcödé ß Σας 🎉",
    "l": [3, 1, 2], "e": [], "d": {"b": 1, "a": {"c": [1, {"x": "y"}]}, "items": "key", "get": 5}, "o": {},
    "words": ["b", "A", "c", "a"],
    "people": [
        {"name": "Ann", "age": 30, "city": "X", "tags": ["p", "q"]},
        {"name": "bob", "age": 25, "city": "y", "tags": []},
        {"name": "Cy", "age": 30, "city": "x"},
    ],
    "text": "line one\n  line two\n\nline four\n", "html": "<b>\"x\" & 'y'</b>", "weird": "a\u2028b\x1cc\u00a0d\te",
}

CASES = r'''
{{ 'a' + ('x' if false else 'y') }}
{{ ('x' if true else 'y') + 'b' }}
{% for m in messages %}{{ (m.role if loop.first else "") }}{% endfor %}
{% set ns = namespace(a=1) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}
{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role }} {% endfor %}
{{ messages | tojson }}
{{ {'a': [1, 2.5, none, true, 'é<&>']} | tojson }}
{{ tools | tojson(indent=4) }}
{{ 'a</think>b'.split('</think>')[-1].lstrip('\n') }}
{{ 'abc'.startswith('ab') and not 'abc'.endswith('x') }}
{% macro f(x, y=2) %}[{{ x }}-{{ y }}]{% endmacro %}{{ f(1) }}{{ f(1, y=3) }}
{% for k, v in {'a':1,'b':2}.items() %}{{ k }}={{ v }};{% endfor %}
{{ messages | map(attribute='role') | list | join(',') }}
{{ messages | selectattr('role','equalto','user') | list | length }}
{% if x is defined %}y{% else %}n{% endif %}{% if messages is iterable and messages is not mapping and messages[0].content is string %}ok{% endif %}
{{ 5 // 2 }} {{ -5 % 3 }} {{ 2 ** 3 }} {{ 7 / 2 }} {{ 1 ~ 'a' ~ 2.0 }}
{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}
{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.role }}{% endfor %}
{{ messages[-1]['content'] | trim | upper }}
{{ 'a' if messages[5] is defined else 'b' }}
{% set content %}hi {{ 1 }}{% endset %}{{ content }}
{% for m in messages if m.role != 'system' %}{{ loop.previtem.role if loop.previtem is defined else '-' }}{% endfor %}
{{ messages[0].get('tool_calls', 'none') }} {{ 'x' in {'x':1} }} {{ 'q' not in 'abc' }}
{{ dict(a=1) }} {{ [1,2]+[3] }} {{ range(3)|list }}
{% generation %}text{% endgeneration %}
{{ '%s-%d' % ('a', 3) }} {{ "{}".format('z') }} {{ 'a,b'.split(',')|length }} {{ ' x '.strip() }} {{ 'ab'.replace('a','c') }} {{ 'hello world'.title() }}
{{ strftime_now('%d %b %Y') }} {{ messages|length }} {{ messages|first|attr('role') }} {{ [3,1,2]|sort|reverse|list }}
{%- for a in [1,2] recursive %}{{ a }}{% endfor -%} {{ none }} {{ true }} {{ 1.0 }} {{ undefined_var }} {{ 3 == 3.0 }}
--- statements
{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}
{% if e %}a{% elif o %}b{% elif '' %}c{% elif 0 %}d{% elif 0.0 %}e{% elif none %}f{% elif nope %}g{% else %}h{% endif %}
{% if n if t else 0 %}x{% endif %}
{% if (n if t else 0) %}x{% endif %}
{% if 1, %}tuple{% endif %}
{% for x in e %}a{% else %}b{% endfor %}
{% for x in l %}{% continue %}{% else %}quirk{% endfor %}
{% for x in l %}{% break %}{% else %}quirk{% endfor %}
{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}no{% endfor %}
{% for x in l %}{{ loop.index }}/{{ loop.length }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.depth }} {{ loop.depth0 }} {{ loop.cycle('a','b') }} {{ loop.previtem }} {{ loop.nextitem }};{% endfor %}
{% for x in l if x > 1 %}{{ loop.length }}{{ loop.last }}{{ x }} {% endfor %}
{% for x in l|select('odd') %}{{ loop.index }}{{ loop.length }}{{ loop.last }}{{ loop.revindex }} {% endfor %}
{% for x in [1,1,2,2,1] %}{{ loop.changed(x) }} {% endfor %}
{% for x in l %}{{ loop.cycle() }}{% endfor %}
{% for x in l %}{{ loop }}{{ loop|length }}{% endfor %}
{% for x in l %}{{ loop.nope is defined }}{{ loop['index'] }}{% endfor %}
{% for a, b in d.items() %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }};{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}x{% endfor %}
{% for a, b in [(1,)] %}x{% endfor %}
{% for a in 5 %}x{% endfor %}
{% for a in none %}x{% endfor %}
{% for a in nope %}x{% else %}empty{% endfor %}
{% for a in nope.x %}x{% endfor %}
{% for c in 'añ🎉' %}[{{ c }}]{% endfor %}
{% for k in d %}{{ k }},{% endfor %}
{% for x in range(3) %}{% for y in range(x) %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{% endfor %}
{% for x in range(2) %}{% set outer = loop %}{% for y in range(2) %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for p in people recursive %}{{ p }}{% endfor %}
{% for x in [{'n': 1, 'c': [{'n': 2, 'c': [{'n': 3}]}]}, {'n': 4}] recursive %}{{ loop.depth }}{{ x.n }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% endfor %}
{% for x in l %}{{ loop([1]) }}{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% for i in l %}{% if i == 1 %}{% set seen = true %}{% endif %}{{ seen }}{% endfor %}{{ seen }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}
{% set a = 1, 2 %}{{ a }}
{% set ns = namespace(x=1, y='b') %}{% set ns.x = 5 %}{{ ns.x }}{{ ns.y }}{{ ns.z }}{{ ns['x'] }}{{ ns }}
{% set ns = namespace({'q': 1}) %}{{ ns.q }}{% set ns.q, ns.r = 2, 3 %}{{ ns.q }}{{ ns.r }}
{% set ns = namespace(_x=1) %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{% set d.x = 1 %}
{% set nope.x = 1 %}
{% set d['x'] = 1 %}
{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m.role] %}{% endfor %}{{ ns.l }}
{% set x | upper | trim %} ab {% endset %}[{{ x }}]
{% set n %}({{ n }}){% endset %}{{ n }}
{{ n }}{% set n %}({{ n }}){% endset %}{{ n }}
{% if true %}{% set n %}({{ n }}){% endset %}{{ n }}{% endif %}
{% for i in l %}{% set x %}{{ i }}{% if i == 1 %}{% continue %}{% endif %}!{% endset %}{{ x }}{% endfor %}
{% set x = 1 %}{% set y %}{% set x = 2 %}{{ x }}{% endset %}{{ x }}{{ y }}
{% macro m(a, b='d', c=none) %}{{ a }}|{{ b }}|{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2, 3) }} {{ m(c=3, a=1) }} {{ m() }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}
{% macro m(a=b, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}|{{ m(b=3) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}
{% macro m() %}{{ caller('c') }}{% endmacro %}{% call(x) m() %}<{{ x }}>{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m(caller=1) %}{{ caller }}{% endmacro %}{{ m() }}{{ m(3) }}
{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m() }}
{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(4) }}
{% macro f() %}{{ y }}{% endmacro %}{% set y = 3 %}{{ f() }}
{% macro f() %}{% set y = 9 %}{{ y }}{% endmacro %}{% set y = 3 %}{{ f() }}{{ y }}
{{ f() }}{% macro f() %}x{% endmacro %}
{% macro f(a, b) %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{% endmacro %}{{ f() }}{{ f is callable }}{{ f is string }}{{ f() is string }}
{% macro f(a, b) %}{% if b is defined %}d{% else %}u{% endif %}{% endmacro %}{{ f(1) }}{{ f(1, none) }}
{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}
{% macro f(*a) %}{% endmacro %}
{% macro f(a, a) %}{% endmacro %}
{% macro f(a=1, b) %}{% endmacro %}
{{ f2(**{'a': 1}) }}
{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(**{'b': 1, 'a': 2}) }}{{ f(*[1], **{'b': 5}) }}
{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(a=1, a=2) }}
{% filter upper %}ab{{ s }}{% endfilter %}
{% filter replace('a', 'b') | upper %}aab{% endfilter %}
{% filter trim %}{% set zz = 1 %} x {% endfilter %}{{ zz }}
{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 5 %}{{ c }}{% endwith %}{{ a }}{{ c }}
{% with a = 1 %}{% with a = a + 1, b = a %}{{ a }}{{ b }}{% endwith %}{% endwith %}
{% with %}{% set n = 1 %}{{ n }}{% endwith %}{{ n }}
{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}
{% for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% for m in messages %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% print 1, 'a' %}
{% raw %}{{ x }}{% y %}{# z #}{% endraw %}
a {%- raw -%} b {%- endraw -%} c
{# comment #}a{#- x -#} b
{% for x in l: %}{{ x }}{% endfor %}
{% break %}
{% for x in l %}{% else %}{% break %}{% endfor %}
{% for x in l %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}
{% for loop in l %}{% endfor %}
{% for x in l %}{% set loop = 1 %}{% endfor %}
{% set loop = 1 %}{{ loop }}
{% nope %}
{% if n %}
{% endif %}
{% for x in l %}{% endif %}
{% else %}
{{ n
{{ n }
{% if n }}
{{ }}
{{ 1 2 }}
{{ (1 }}
{{ [1, 2 }}
{{ a.b. }}
{{ 'abc }}
{{ "a" "b" 'c' }}
{{ 1 +}}
{{ ! }}
{{ a ? b }}
{# never closed
{% raw %} never closed
{% set 1 = 2 %}
{% set true = 2 %}
{% set [a] = 2 %}
{% set (a, b) = (1, 2) %}{{ a }}{{ b }}
{{ s|nope }}
{{ s is nope }}
{% if false %}{{ s|nope }}{% endif %}ok
{% if true %}{{ s|nope }}{% endif %}ok
{% if false %}{% for x in l %}{{ s|nope }}{% endfor %}{% endif %}ok
{{ s|nope if false else 1 }}
--- expressions
{{ 1 + 2 * 3 - 4 / 2 }} {{ (1 + 2) * 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7 // 2 * 2 }} {{ 7 % 4 % 2 }}
{{ 1 ~ 2 + 3 }}
{{ 1 + 2 ~ 3 }}
{{ 'a' ~ 1 + 2 }}
{{ 2 * 3 ~ 4 }}
{{ -7 // 2 }} {{ 7 // -2 }} {{ -7 % 2 }} {{ 7 % -2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 0.0 // -1 }} {{ -0.0 % 3 }}
{{ 1 / 3 }} {{ 2 / 1 }} {{ 10 / 4 }} {{ 1e3 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789012345678.0 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1.5e300 * 1e10 }} {{ 0.1 + 0.2 }} {{ 1e400 }} {{ -1e400 }}
{{ 9007199254740993 / 3 }} {{ 9223372036854775807 }} {{ -9223372036854775807 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ 1.5 // 0 }}
{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5_0 }} {{ 1E2 }}
{{ 007 }}
{{ true + true }} {{ true * 3 }} {{ -true }} {{ +false }} {{ true / 2 }} {{ true ~ 1 }}
{{ 'a' * 3 }} {{ 3 * 'ab' }} {{ 'a' * -1 }} {{ [1] * 2 }} {{ 2 * (1, 2) }} {{ 'a' * true }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + (2,) }}
{{ none + 1 }}
{{ 'a' - 'b' }}
{{ -'a' }}
{{ nope + 1 }}
{{ 1 + nope }}
{{ 'a' + nope }}
{{ 'a' ~ nope ~ none ~ [1] }}
{{ nope.x }}
{{ nope['x'] }}
{{ nope() }}
{{ nope.x is defined }}
{{ none.x }} {{ n.x }} {{ none.x is defined }}
{{ none.x.y }}
{{ d.a.c[1].x }} {{ d['a']['c'][0] }} {{ d.a.zz }} {{ d.zz is defined }} {{ d.a.c.1.x }} {{ d.a.c[-1]['x'] }}
{{ d['items'] }} {{ d.items is callable }} {{ d.get is string }}
{{ d['get'] }} {{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 3) }} {{ d['keys'] is callable }}
{{ d.get('b', default=3) }}
{{ d.get() }}
{{ d.get([]) }}
{{ d.keys() }} {{ d.values() }} {{ o.items() }} {{ d.items()|length }} {{ d.keys()|list }}
{{ d.keys()[0] }}
{{ d.keys()[0] is defined }} {{ 'b' in d.keys() }} {{ 1 in d.values() }} {{ ('b', 1) in d.items() }} {{ d.keys() is sequence }} {{ d.keys() is iterable }} {{ d.keys() is mapping }}
{{ d.copy() == d }}
{{ d.pop('b') }}
{{ d.update({}) }}
{{ d.pop is defined }} {{ d.pop }} {{ l.append is defined }} {{ d.__class__ }}|{{ d.__class__ is defined }} {{ s.__len__ }}
{{ l.append(1) }}
{% set _ = l.append(1) %}
{{ d.__class__.x }}
{{ l.count(1) }} {{ l.index(2) }} {{ (1, 2).index(2) }} {{ (1, 1).count(1) }} {{ l.nope }} {{ l['x'] }} {{ l[10] }} {{ l['0'] }} {{ l.0 }}
{{ l.index(9) }}
{{ [3, 1, 2].sort() }}
{{ 'abc'[0] }} {{ 'abc'[-1] }} {{ 'abc'[5] }} {{ 'añ🎉'[2] }} {{ 'abc'[1:] }} {{ 'abc'[:-1] }} {{ 'abc'[::-1] }} {{ 'añ🎉'[1:] }} {{ 'abcdef'[1:5:2] }} {{ 'abcdef'[5:1:-2] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[10:] }}| {{ 'abcdef'[:100] }} {{ 'abcdef'[-100:2] }}
{{ l[1:] }} {{ l[::-1] }} {{ l[:2] }} {{ (1, 2, 3)[1:] }} {{ l[-2:-1] }} {{ l[::2] }} {{ e[::-1] }} {{ e[1:] }} {{ range(10)[2:8:3] }} {{ range(10)[::-3] }} {{ range(10)[::3]|list }} {{ range(5)[-1] }} {{ l[none:none] }} {{ l[true:] }}
{{ [1, 2][[0][:]] }}|{{ d['ab'[:1]] }}|{{ l[[1][0:1][0]] }}|{{ 'abc'['a'[1:]] }}
{{ range(3)|batch(())|list }}|{{ range(3)|batch('2')|list }}|{{ range(3)|batch(2.0)|list }}|{{ range(4)|batch(2.0, 'x')|list }}|{{ range(3)|batch(1.5)|list }}|{{ range(3)|batch(1.5, 'x')|list }}|{{ []|batch('a', 'b')|list }}
{{ range(3)|batch(2.0, 'x')|list }}
{{ range(3)|batch('2', 'x')|list }}
{{ l[::0] }}
{{ l['a':] }}
{{ none_value[1:] }}
{{ d[1:] }}
{{ nope[1:] }}
{{ n[1:] }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 >= 2 == 2.0 != 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ none == false }} {{ [1, 2] == [1, 2.0] }} {{ (1,) == [1] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }} {{ nope == nope2 }} {{ nope == none }} {{ nope != 1 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ nope < 1 }}
{{ [] < () }}
{{ {} < {} }}
{{ 1 in [1.0] }} {{ 'a' in 'abc' }} {{ '' in 'abc' }} {{ 'b' in d }} {{ 2 not in l }} {{ 1 in (1, 2) }} {{ 3 in range(5) }} {{ 'x' in nope }} {{ nope in [nope] }} {{ true in [1] }} {{ not 1 in l }}
{{ 1 in 'abc' }}
{{ none in 'abc' }}
{{ nope in 'abc' }}
{{ 1 in 5 }}
{{ 1 in none }}
{{ [] in {} }}
{{ 0 or 'x' }} {{ 1 and 'y' }} {{ '' or none }} {{ none and 1 }} {{ not none }} {{ not not 'a' }} {{ nope or 'd' }} {{ nope and 1 }}| {{ 1 or nope.x }} {{ not 1 == 2 }}
{{ 'a' if n > 5 }} {{ 'a' if n > 50 }}| {{ ('a' if n > 50) is defined }} {{ 1 if true else 2 if true else 3 }} {{ 1 if false else 2 if false else 3 }}
{{ ('a' if n > 50).x }}
{{ [1, 'a', none, true, 1.5, [], {}, (), (1,), (1, 2)] }} {{ {'a': 1, 2: 'b', none: 3, (1, 2): [1]} }} {{ [1, 2,] }} {{ (1,) }} {{ () }} {{ {'a': 1,} }}
{{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {1: 'x'}[true] }} {{ {'a': 1, 'a': 2} }}
{{ {[]: 1} }}
{{ 'it\'s' }} {{ ["it's", 'say "x"', "both ' and \"", 'nl\n\t\r\\', 'é🎉\x00\x7f\xa0\u2028'] }}
{{ 'a\nb\tc\\d\'e\"f\x41\u00e9\U0001F389\101\q\é' }}
{{ "a\
b" }}
{{ 'a\xzz' }}
{{ '\u12' }}
{{ u }} {{ [u] }} {{ u|length }} {{ weird.split() }} {{ weird.splitlines() }} {{ [weird] }}
{{ n is number }} {{ f is float }} {{ n is integer }} {{ t is integer }} {{ t is number }} {{ t is boolean }} {{ s is string }} {{ none is none }} {{ nope is none }} {{ d is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ s is iterable }} {{ n is iterable }} {{ nope is iterable }} {{ nope is sequence }} {{ (1,) is sequence }} {{ range(2) is sequence }} {{ nope is undefined }} {{ t is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }}
{{ 4 is even }} {{ 3 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 2 is lessthan 1 }} {{ 2 is ge 2 }} {{ 2 is le 1 }} {{ none is sameas none }} {{ l is sameas l }} {{ 1 is in [1, 2] }} {{ 1 is not in [1] }} {{ 'a' is in 'abc' }} {{ 'abc' is lower }} {{ 'Abc' is upper }} {{ 'ABC' is upper }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 'x'|safe is escaped }} {{ s is escaped }} {{ s.upper is callable }} {{ n is callable }} {{ nope is callable }}
{{ n is not none and s is string or false }} {{ not n is none }} {{ n is defined and n }} {{ n is divisibleby 7 and true }}
{{ 'a' is odd }}
{{ none is even }}
{{ n is divisibleby }}
{{ n is divisibleby 0 }}
{{ n is string is string }}
{{ n is 5 }}
{{ 5 is defined == true }}
{{ n is eq(7) ~ 'x' }}
{{ l|length > 2 and l|first == 3 }} {{ -1|abs }} {{ -f|abs }} {{ 'a' + 'b'|upper }} {{ ('a' + 'b')|upper }}
{{ 2 ** 3|string }}
{{ (2 ** 3)|string }}
{{ range(5)|list }} {{ range(2, 5)|list }} {{ range(5, 0, -2)|list }} {{ range(0) }} {{ range(3) }} {{ range(1, 10, 3) }} {{ range(3)|length }} {{ range(1, 4)[1] }}
{{ range(100000)|length }}
{{ range(100001) }}
{{ range(1.5) }}
{{ range() }}
{{ range(1, 2, 0) }}
{{ dict(a=1, b=2) }} {{ dict({'a': 1}, a=2) }} {{ dict([('x', 1), 'yz']) }} {{ dict() }}
{{ dict([1]) }}
{{ raise_exception('no: ' ~ n) }}
{{ raise_exception() }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %j %A %B %y %I %p %a %b %% %f %-d %-m %e') }}
{{ n() }}
{{ s() }}
{{ s.nope() }}
{{ nope.nope() }}
{{ a.b['c'](1).d }}
{{ f(1,) }}
{{ f(a=1, 2) }}
{{ f(**a, *b) }}
{{ messages[0]['role', 'x'] }}
--- methods
{{ 'a,b,,c'.split(',') }} {{ 'a,b,,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('b', maxsplit=0) }} {{ 'a b'.split(sep=' ') }} {{ 'a-b-c'.rsplit('-', 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ ' a b '.rsplit() }} {{ 'a-b-c'.rsplit('-') }} {{ ' a b '.split(none, 0) }} {{ ' a b '.rsplit(none, 0) }} {{ ''.rsplit() }} {{ ''.rsplit(',') }}
{{ 'a'.split('') }}
{{ 'a'.split(1) }}
{{ '  ab '.strip() }}|{{ '  ab '.lstrip() }}|{{ '  ab '.rstrip() }}|{{ 'xxabxx'.strip('x') }}|{{ 'xyabyx'.strip('xy') }}|{{ 'ab'.strip('') }}|{{ ' a '.strip(none) }}|{{ '\u00a0\u2003a\x1f'.strip() }}|
{{ 'a'.strip(1) }}
{{ 'abc'.startswith(('x', 'ab')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'abc'.startswith('') }} {{ 'abc'.startswith('', 4) }} {{ 'abc'.startswith('', 3) }} {{ 'abc'.endswith(()) }}
{{ 'abc'.startswith(1) }}
{{ 'abc'.startswith(['a']) }}
{{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'añb'.find('b') }} {{ 'hello'.index('e') }} {{ 'hello'.rindex('l') }} {{ 'hello'.find('l', 3) }} {{ 'hello'.find('l', -2) }} {{ 'hello'.find('', 9) }} {{ 'hello'.count('l') }} {{ 'hello'.count('') }} {{ 'aaaa'.count('aa') }} {{ 'hello'.count('l', 3) }} {{ ''.count('', 1) }}
{{ 'hello'.index('z') }}
{{ 'aXb'.lower() }} {{ u.upper() }} {{ u.lower() }} {{ 'ΑΣ ΣΑ Σ'.lower() }} {{ 'hELLO wORLD it\'s 3rd'.title() }} {{ 'hELLO World'.capitalize() }} {{ 'aBc'.swapcase() }} {{ 'ǆ ß ﬁ'.title() }} {{ 'ﬁx'.capitalize() }} {{ 'Straße'.casefold() }}
{{ 'aab'.replace('a', 'x') }} {{ 'aab'.replace('a', 'x', 1) }} {{ 'ab'.replace('', '-') }} {{ 'aaa'.replace('a', '', -1) }} {{ 'abab'.replace('ab', 'b') }} {{ 'ab'.replace('', '-', 2) }}
{{ 'a'.replace('a') }}
{{ 'a'.replace(1, 'b') }}
{{ 'a-b'.partition('-') }} {{ 'ab'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'ab'.rpartition('-') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'abc'.removeprefix('z') }}
{{ ','.join(['a', 'b']) }} {{ '-'.join('abc') }} {{ ','.join({'a': 1, 'b': 2}) }} {{ ','.join(messages|map(attribute='role')) }} {{ ''.join([]) }}
{{ ','.join([1]) }}
{{ ','.join(1) }}
{{ '123'.isdigit() }} {{ '12a'.isdigit() }} {{ ''.isdigit() }} {{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ ' \t'.isspace() }} {{ 'abc'.islower() }} {{ 'ABC1'.isupper() }} {{ 'Ab Cd'.istitle() }} {{ 'AB'.istitle() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '½'.isnumeric() }} {{ 'abc'.isascii() }} {{ 'é'.isascii() }} {{ 'a_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'a\n'.isprintable() }} {{ '1'.islower() }} {{ ''.isascii() }}
{{ 'ab'.center(7, '*') }} {{ 'abc'.center(6) }}| {{ 'ab'.ljust(4) }}| {{ 'ab'.rjust(4, '.') }} {{ '-5'.zfill(4) }} {{ '5'.zfill(3) }} {{ 'a\tb'.expandtabs(4) }} {{ 'ab'.center(5, '*') }} {{ 'abc'.center(1) }} {{ '+'.zfill(3) }}
{{ 'ab'.center(7, '**') }}
{{ text.splitlines() }} {{ text.splitlines(true) }} {{ 'a\r\nb\rc'.splitlines() }} {{ ''.splitlines() }} {{ 'a\n'.splitlines(keepends=true) }}
{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format('a', 'b') }} {{ '{x} {y[0]} {z.a} {w[k]}'.format(x=1, y=[2], z={'a': 3}, w={'k': 4}) }} {{ '{{}}'.format() }} {{ '{!r}'.format('a') }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }} {{ '{:05d} {:+d} {:x} {:#x} {:b} {:,} {:_}'.format(42, 5, 255, 255, 5, 1234567, 1234567) }} {{ '{:.2f} {:8.3f} {:e} {:g} {:%} {:.1%}'.format(3.14159, 2.5, 12345.678, 0.00001, 0.25, 0.123) }} {{ '{:{}}'.format('a', 4) }}| {{ '{:.2}'.format('abc') }} {{ '{}'.format(none) }} {{ '{:d}'.format(true) }} {{ '{}'.format(true) }} {{ '{:.3} {:.3} {:.3}'.format(12.0, 123.0, 0.00001234) }} {{ '{:5}|{:5}'.format(1, true) }} {{ '{: d}'.format(3) }}
{{ '{}'.format() }}
{{ '{x}'.format(y=1) }}
{{ '{0} {}'.format(1, 2) }}
{{ '{'.format() }}
{{ '}'.format() }}
{{ '{:d}'.format('a') }}
{{ '{:d}'.format(1.5) }}
{{ '{:5}'.format(none) }}
{{ '{x.y}'.format(x=d) }}|{{ '{x.b}'.format(x=d) }} {{ '{a}'.format_map({'a': 1}) }}
{{ '%s %s' % (1, 'a') }} {{ '%d' % 3.7 }} {{ '%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5) }} {{ '%.2f %e %g %G' % (3.14159, 12345.678, 1e-10, 1e20) }} {{ '%x %X %o %#x' % (255, 255, 8, 255) }} {{ '%r %s' % ('a', none) }} {{ '%%' % () }} {{ '%(a)s-%(b)d' % {'a': 'x', 'b': 2} }} {{ '%c%c' % ('a', 66) }} {{ '%5s|%-5s|%.2s' % ('a', 'b', 'abc') }} {{ '%s' % [1, 2] }} {{ '%s' % ((1, 2),) }} {{ '%*d' % (5, 3) }} {{ 'x' % {} }} {{ '%s' % d }} {{ '%s' % nope }}| {{ '%d' % true }} {{ '%i' % -3 }} {{ 'x' % [] }} {{ '%08.3f' % -3.14159 }} {{ '%s' % true }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '%s' % (1, 2) }}
{{ 'x' % 1 }}
{{ '%z' % 1 }}
{{ '%' % 1 }}
{{ '%(a)s' % 1 }}
{{ '%(a)s' % {'b': 1} }}
{{ '%x' % 1.5 }}
--- filters
{{ '  a '|trim }}| {{ 'xxaxx'|trim('x') }} {{ none|trim }} {{ 5|trim }} {{ nope|trim }}| {{ s|lower }} {{ s|upper }} {{ u|upper }} {{ 5|upper }} {{ none|lower }}
{{ s|length }} {{ l|count }} {{ d|length }} {{ nope|length }} {{ u|length }}
{{ n|length }}
{{ none|length }}
{{ messages|map('upper')|length }}
{{ [1, 'a', none, 2.5]|join('-') }} {{ people|join(', ', attribute='name') }} {{ 'abc'|join('.') }} {{ e|join }}| {{ l|join(d=0) }} {{ nope|join(',') }}|
{{ 5|join }}
{{ people|map(attribute='name')|list }} {{ people[:2]|map(attribute='tags.0')|list }} {{ people|map(attribute='zz', default='D')|list }} {{ words|map('upper')|join }} {{ ['1', '2']|map('int')|sum }} {{ words|map('replace', 'a', 'z')|list }} {{ nope|map('upper')|list }} {{ none|map('upper')|list }} {{ d|map('upper')|list }} {{ [[1, 2], [3]]|map('first')|list }} {{ [' a ']|map('trim')|list }}
{{ people|map(attribute='name', foo=1)|list }}
{{ words|map()|list }}
{{ words|map('nope')|list }}
{{ [1]|map(attribute='a.b')|list }}
{{ 5|map('upper')|list }}
{{ l|select('odd')|list }} {{ l|select|list }} {{ [0, 1, '', none]|select|list }} {{ l|reject('odd')|list }} {{ l|select('gt', 1)|list }} {{ l|select('in', [1, 2])|list }} {{ [0, 1, '']|reject|list }} {{ l|select('divisibleby', 2)|list }} {{ none|select|list }} {{ [none, 1]|reject('none')|list }} {{ [1, 'a']|select('string')|list }}
{{ people|selectattr('age', 'gt', 26)|map(attribute='name')|list }} {{ people|selectattr('tags')|list|length }} {{ people|rejectattr('tags')|map(attribute='name')|list }} {{ people|selectattr('tags', 'defined')|list|length }} {{ people|rejectattr('tags', 'undefined')|list|length }}
{{ people|selectattr('zz.y', 'defined')|list }}
{{ people|selectattr('zz', 'undefined')|list|length }} {{ people|selectattr('name', 'in', ['Ann'])|first }} {{ people|selectattr('age', '==', 25)|map(attribute='name')|first }}
{{ people|selectattr()|list }}
{{ people|selectattr('name', 'nope')|list }}
{% if people|selectattr('age', 'gt', 100) %}generator is true{% endif %}
{% set g = l|select('odd') %}{{ g|list }}{{ g|list }}
{% set g = l|map('string') %}{{ g|first }}{{ g|first }}{{ g|join }}
{{ (l|map('string'))[0] }}
{{ l|map('string')|last }}
{{ nope|default('x') }} {{ none|default('x') }} {{ none|default('x', true) }} {{ ''|default('x', boolean=true) }} {{ 0|d('x') }} {{ nope|d }}|
{{ nope.x|default('q') }}
{{ d.zz|default('y') }}
{{ d.zz.q|default('y') }}
{{ l|first }} {{ l|last }} {{ e|first }}| {{ e|last }}| {{ 'abc'|first }} {{ 'abc'|last }} {{ d|first }} {{ d|last }} {{ nope|first }}| {{ nope|last }}| {{ d.items()|first }} {{ range(3)|last }} {{ (1, 2)|last }}
{{ (e|first).x }}
{{ none|first }}
{{ 5|last }}
{{ 'abc'|list }} {{ d|list }} {{ (1, 2)|list }} {{ nope|list }} {{ d|items|list }} {{ d.items()|list }} {{ nope|items|list }} {{ range(2)|list }}
{{ none|list }}
{{ none|items|list }}
{{ l|items|list }}
{{ none|items is defined }}
{{ 1|string }} {{ none|string }} {{ [1]|string|length }} {{ 1.50|string }} {{ nope|string }}| {{ true|string }}
{{ '42'|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(9) }} {{ 4.9|int }} {{ -4.9|int }} {{ none|int }} {{ true|int }} {{ ' 5 '|int }} {{ '0x1f'|int(base=16) }} {{ 'ff'|int(0, 16) }} {{ '101'|int(base=2) }} {{ '1_000'|int }} {{ '-7'|int }} {{ '+7'|int }} {{ '--7'|int }} {{ '1e3'|int }} {{ 'inf'|int }} {{ 'nan'|int }} {{ []|int }} {{ '0x1f'|int }} {{ '0b11'|int(base=0) }} {{ '_1'|int }} {{ ''|int }}
{{ nope|int }}
{{ '4.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ none|float }} {{ '1e5'|float }} {{ ' 2 '|float }} {{ 'inf'|float }} {{ 'nan'|float }} {{ '1_0'|float }} {{ '0x10'|float }} {{ '-Infinity'|float }}
{{ nope|float }}
{{ 'hello world-foo (bar) [baz] {q} <r> o\'k'|title }} {{ 'HELLO wORLD'|capitalize }} {{ nope|title }}| {{ u|title }} {{ u|capitalize }} {{ 5|title }}
{{ 'aab'|replace('a', 'x') }} {{ 'aab'|replace('a', 'x', 1) }} {{ 'aab'|replace('a', 'x', count=1) }} {{ 5|replace(5, 6) }} {{ nope|replace('a', 'b') }}| {{ none|replace('None', 'x') }}
{{ 'a'|replace('a') }}
{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ none|tojson }} {{ 1.0|tojson }} {{ (1, 2)|tojson }} {{ u|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ html|tojson }} {{ weird|tojson }} {{ '\x00\x1f\x7f\x08\x0c/'|tojson }} {{ '\x7f'|tojson(true) }} {{ true|tojson }} {{ 'x'|safe|tojson }}
{{ tools|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ []|tojson(indent=2) }} {{ [[]]|tojson(indent=1) }} {{ d|tojson(indent='\t') }} {{ l|tojson(indent=0) }} {{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(indent=2, separators=(', ', ' = ')) }} {{ l|tojson(false, 2) }} {{ l|tojson(indent=none) }} {{ l|tojson(indent=-1) }} {{ l|tojson(indent=true) }}
{{ {1: 'a', none: 1, true: 2, 1.5: 3}|tojson }} {{ [1e400, -1e400, 1e20, 1e-7, 0.1]|tojson }} {{ 'nan'|float|tojson }}
{{ {(1, 2): 1}|tojson }}
{{ nope|tojson }}
{{ d.items()|tojson }}
{{ [nope]|tojson }}
{{ l|map('string')|tojson }}
{{ namespace()|tojson }}
{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}
{{ d|tojson(nope=1) }}
{{ d|dictsort }} {{ {'b': 1, 'A': 3, 'c': 2}|dictsort }} {{ {'b': 1, 'A': 3, 'c': 2}|dictsort(true) }} {{ {'b': 1, 'A': 3}|dictsort(by='value') }} {{ {'b': 1, 'A': 3, 'c': 2}|dictsort(false, 'value', true) }} {{ o|dictsort }}
{{ d|dictsort(by='value') }}
{{ d|dictsort(by='nope') }}
{{ l|dictsort }}
{{ nope|dictsort }}
{{ words|sort }} {{ words|sort(true) }} {{ words|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name', reverse=true)|map(attribute='name')|list }} {{ 'cab'|sort }} {{ d|sort }} {{ nope|sort }} {{ [[2, 1], [1, 2]]|sort }} {{ [true, 0, 0.5]|sort }} {{ [[2, 'a'], [1, 'b']]|sort(attribute=0) }}
{{ [1, 'a']|sort }}
{{ [none, 1]|sort }}
{{ none|sort }}
{{ ['a', 'A', 'b', 1, 1.0, true]|unique|list }} {{ words|unique(case_sensitive=true)|list }} {{ people|unique(attribute='city')|map(attribute='name')|list }} {{ nope|unique|list }} {{ [(1, 2), (1, 2), (1, 3)]|unique|list }}
{{ [[1]]|unique|list }}
{{ l|reverse|list }} {{ 'añb'|reverse }} {{ d|reverse|list }} {{ (1, 2)|reverse|list }} {{ l|select|reverse }} {{ range(3)|reverse|list }} {{ d.items()|reverse|list }} {{ nope|reverse|list }}
{{ 5|reverse }}
{{ l|reverse|length }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.55|round(1, 'floor') }} {{ 2.51|round(1, 'ceil') }} {{ 7|round }} {{ 7|round(2) }} {{ -2.5|round }} {{ 42.55|round|int }} {{ 7|round(0, 'ceil') }} {{ 1e20|round }} {{ 0.5|round }} {{ 2.5|round(precision=0) }} {{ true|round }}
{{ 2.5|round(1, 'x') }}
{{ 'a'|round }}
{{ none|round }}
{{ nope|round }}
{{ -3|abs }} {{ -3.5|abs }} {{ true|abs }} {{ 0|abs }}
{{ 'a'|abs }}
{{ nope|abs }}
{{ text|indent }} {{ text|indent(2) }} {{ text|indent(2, true) }} {{ text|indent(2, first=true, blank=true) }} {{ text|indent('> ') }} {{ ''|indent }}| {{ 'a'|indent(first=true) }} {{ 'a\n\n\nb\n'|indent(1, blank=true) }}
{{ 5|indent }}
{{ nope|indent }}
{{ none|indent }}
{{ html|safe }} {{ html|escape }} {{ html|e }} {{ html|safe|escape }} {{ ('<a>'|safe) + '<b>' }} {{ '<b>' + ('<a>'|safe) }} {{ ('<a>'|safe) ~ '<b>' }} {{ ('<a>'|safe) * 2 }} {{ ['<a>'|safe] }} {{ ('<a>'|safe)|upper + '<' }} {{ ('%s<'|safe) % '<' }} {{ ('<a>'|safe)[1:] + '<' }} {{ ('a<'|safe).replace('a', '<') }} {{ ('a-<'|safe).split('-')[1] + '<' }} {{ ('<a>'|safe)|length }} {{ ('<a>'|safe) == '<a>' }} {{ ('<a>'|safe).strip('<') + '<' }} {{ '<a>'|safe|trim + '<' }} {{ 5|safe + '<' }} {{ tools|tojson|safe + '<' }} {{ ('a'|safe)|string + '<' }} {{ ('a'|safe)|replace('a', 'b') + '<' }} {{ ('<a>'|safe) in ['<a>'] }} {{ {'a': 1}['a'|safe] }} {{ ('abc'|safe).startswith('<') }} {{ ('a'|safe)|title + '<' }} {{ ('a\nb'|safe)|indent + '<' }} {{ ('-'|safe).join(['<', '>']) }} {{ ('-'|safe).join([1, '<'|safe]) }} {{ ('a'|safe).center(3, '<') }} {{ ('<a'|safe).removeprefix('<') + '<' }} {{ ('a<b'|safe).partition('<') }} {{ ('a'|safe)|capitalize + '<' }} {{ ('a'|safe)|center(3) + '<' }}|
{{ ('<a>'|safe) + 1 }}
{{ l|batch(2)|list }} {{ l|batch(2, 'x')|list }} {{ range(5)|batch(3)|list }} {{ e|batch(2)|list }} {{ l|batch(0)|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }} {{ l|slice(5)|list }} {{ range(6)|slice(3, 'x')|list }}
{{ people|groupby('city') }} {% for c, ps in people|groupby('city') %}{{ c }}:{{ ps|map(attribute='name')|join(',') }};{% endfor %} {% for g in people|groupby('age') %}{{ g.grouper }}{{ g.list|length }}{% endfor %} {{ people|groupby('city', case_sensitive=true)|map('first')|list }} {{ people|groupby('zz', default='D')|map(attribute='grouper')|list }}
{{ people|groupby('tags.0') }}
{{ n|batch(2) is defined }} {{ n|slice(2) is iterable }}
{{ n|batch(2)|list }}
{{ n|slice(2)|list }}
{{ l|slice(0)|list }}
{{ l|indent }}
{{ l|sum }} {{ people|sum(attribute='age') }} {{ e|sum }} {{ l|sum(start=10) }} {{ [0.1, 0.2]|sum }} {{ [[1], [2]]|sum(start=[]) }} {{ nope|sum }}
{{ ['a']|sum }}
{{ l|min }} {{ l|max }} {{ words|min }} {{ words|max }} {{ words|min(case_sensitive=true) }} {{ people|max(attribute='age') }} {{ e|min }}| {{ e|max is defined }} {{ nope|min }}|
{{ [1, 'a']|max }}
{{ none|min }}
{{ '%s, %s!'|format('a', 'b') }} {{ '%(x)s'|format(x=1) }} {{ 'x'|format }} {{ '%d'|format(3) }}
{{ '%s'|format(1, x=2) }}
{{ '%s'|format }}
{{ 'a b  c-d_e'|wordcount }} {{ nope|wordcount }} {{ u|wordcount }}
{{ 'a'|center(5) }}| {{ 'ab'|center(width=3) }}|
{{ messages[0]|attr('role') }}| {{ messages[0]|attr('items') is callable }} {{ s|attr('upper')() }} {{ namespace(a=1)|attr('a') }} {{ d|attr('__class__') }}|
{{ nope|attr('x') }}
{{ s|upper(1) }}
{{ s|trim(chars='Hd') }}
{{ s|trim(nope=1) }}
{{ s|default }} {{ s|d('x', true) }}
{{ l|join(',')|upper|length }}
--- found by random templates
{{ dict(nope) }}
{{ namespace(nope) }}
{{ 'ǅ İı ﬃ ẞ ſ ς ΣΣ Ꭰ ꭰ'.casefold() }}
{{ 0 / -3 }} {{ 0 / 3 }} {{ 0.0 / -3 }} {{ (e|sum) / -1 }}
{% filter list %}{% endfilter %}
{% filter length %}abc{% endfilter %}
{% filter first %}{% endfilter %}
{% filter safe %}a{% endfilter %}
{% if false %}{% filter list %}{% endfilter %}{% endif %}ok
{% set x | replace('', nope_name) %}{% endset %}
{% set x | replace('a', nope_name) %}{{ nope_name }}{% endset %}{{ x }}
{% set x | center(n) %}a{% endset %}{{ x }}{{ n }}
{% set x | center(n) %}a{% endset %}
{% macro m(w) %}{% set x | center(w) %}a{% endset %}{{ x }}|{% endmacro %}{{ m(3) }}
{% macro g() %}{{ caller }}{{ caller.name }}{{ caller.arguments }}{% endmacro %}{% call(v) g() %}{% endcall %}
{{ s is test }} {{ s is filter }} {{ none is filter }} {{ (1,) is test }}
{{ d is test }}
{{ l is filter }}
{{ (1, []) is filter }}
{{ '٣'|int }} {{ '٣.٥'|float }} {{ '𝟙𝟚𝟛'|int }} {{ '१२'|int(base=8) }} {{ '²'|int }} {{ '٣_٣'|int }} {{ '－1'|int }}
{{ (-5e-324)|round(1, 'ceil') }} {{ (-0.4)|round(0, 'ceil') }} {{ (-0.0)|round(0, 'floor') }} {{ (-0.4)|round }} {{ 1e22|round(0, 'ceil') }}
{{ 1.7e308|round(3, 'ceil') }}
{{ (e|join ~ 'nan')|float|round(0, 'floor') }}
{{ (e|join ~ 'inf')|float|round(0, 'floor') }}
{{ 'inf'|float|round }} {{ 'nan'|float|round(2) }}
{% filter upper %}{{ n }}{% endfilter %}{% set n = 1 %}{{ n }}
{% for x in l %}{{ n }}{% endfor %}{% set n = 1 %}{{ n }}
{% for x in l %}{{ n }}{% set n = x %}{{ n }}{% endfor %}{{ n }}
{% for x in l %}{% set n = x %}{{ n }}{% endfor %}{{ n }}
{% for x in l %}{% if x == 1 %}{% set n = x %}{% endif %}{{ n }}{% endfor %}
{% for x in l %}{% if x == 1 %}{{ y2 }}{% else %}{% for z in l %}{{ n }}{% endfor %}{% endif %}{% endfor %}{% macro n() %}{% endmacro %}
{% if t %}{% set n = 1 %}{% endif %}{% for x in l %}{{ n }}{% endfor %}
{% if e %}{% set n = 1 %}{% endif %}{% for x in l %}{{ n }}{% endfor %}
{% if e %}{% set n = 1 %}{% elif t %}{% set n = 2 %}{% else %}{% set n = 3 %}{% endif %}{{ n }}
{% if e %}{% for x in l %}{{ n }}{% endfor %}{% set n = 1 %}{% endif %}{{ n }}
{% if e %}a{% elif t %}{% for x in l %}{{ n }}{% endfor %}{% endif %}{% set n = 1 %}
{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 1 %}{{ m() }}
{% macro m(a=n) %}{{ a }}{% endmacro %}{{ m() }}{% set n = 1 %}{{ m() }}
{% macro m() %}{% for x in l %}{{ n }}{% endfor %}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}
{% with a = n %}{{ a }}{{ n }}{% set n = 2 %}{{ n }}{% endwith %}{{ n }}
{% with a = 1 %}{% set n = 2 %}{{ n }}{% endwith %}{{ n }}
{% with a = 1 %}{{ n }}{% endwith %}{% set n = 2 %}
{% set x %}{{ n }}{% endset %}{% set n = 2 %}{{ x }}
{% set ns = namespace(a=n) %}{% for x in l %}{% set ns.a = n %}{% endfor %}{% set n = 1 %}{{ ns.a }}
{% for x in l %}{% set ns.a = 1 %}{% endfor %}{% set ns = namespace() %}
{% for x in l %}{% set d = x %}{% else %}{{ d }}{% endfor %}{% for x in [] %}{% else %}{% set d = 1 %}{{ d }}{% endfor %}
{% for x in l if x > n %}{{ x }}{% endfor %}{% set n = 1 %}
{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ n }}{% endcall %}{% set n = 1 %}
{% generation %}{{ n }}{% endgeneration %}{% set n = 1 %}
'''

# Cases with line feeds, which the list above cannot hold.
BLOCKS = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n  {% if true %}  \n  b\n  {% endif %}\nc\n\n",
    "  {% if true %}x{% endif %}",
    "  {%+ if true %}x{% endif %}",
    "x {% if true +%}\ny{% endif %}",
    "x  \n {%- if true -%} \n y \n {%- endif -%} \n z",
    "a\n  {{ n }}  \nb",
    "a\n  {{- n -}}  \nb",
    "a {{-1}} {{+1}} {{- -1 }}",
    "a\n  {# c #}\nb {# c #} \n  {#+ c #}\n c {#- d -#}\n e {# f +#}\n g",
    "a\n  {% raw %}\n {{ x }}\n  {% endraw %}\n b",
    "{% raw -%}\n a\n {%- endraw +%}\nb",
    "a\n {%- raw %} x {% endraw -%}\n b",
    "{% raw %}a{% endraw %}{% raw %}b{% endraw %}",
    "{%if true%}a{%endif%}{%- if true -%}b{%- endif -%}",
    "{% for x in l %}\n  - {{ x }}\n{% endfor %}\nend",
    "{% for x in l -%}\n  - {{ x }}\n{%- endfor %}\nend",
    "\n\n{% set x = 1 %}\n\n{{ x }}\n\n",
    "a\r\nb\rc\r\n{% if true %}\r\nd{% endif %}\r\n",
    "{{ 'a\r\nb' }}",
    "{{ 'a\n b' }}",
    "{{ {'a': 1,\n 'b': [1,\n2]} }}",
    "{% set x = [\n  1,\n  2\n] %}{{ x }}",
    "{% macro f(x) %}\n  [{{ x }}]\n{% endmacro %}\n{{ f(1) }}\n{{ f(2) }}",
    "{{ '{{' }}{{ '}}' }}{{ '{%' }}",
    "{ {a} % } {x} {} {{ '{' }}",
    "{{ {'a': {'b': 1}}}}",
    "{{ {'a': {'b': 1}} }}",
    "{{ '#}' }}{# #}{{ '{#' }}",
    "   {% set a = 1 %}   {% set b = 2 %}   x",
    "{% set a = 1 %}\n   {% set b = 2 %}\n   x",
    "\t{% if true %}\t\n\tx\n\t{% endif %}",
    "a{% if true %}\n\nb{% endif %}",
    "{%- for m in messages %}{{- '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{%- endfor %}",
    "{{ 1 }}\n{{ 2 }}\n",
    "{{ 1 -}}\n\n  {{ 2 }}\n",
    "line\n{{ nope.x }}",
    "\n\n\n{% if %}",
    "",
    "\n",
    "\n\n",
    "{",
    "{{",
    "{%",
    "{#",
    "{# #}\n\n",
    "x{% set y %}\n  a\n{% endset %}[{{ y }}]",
    "{% raw %}",
    "{% raw %} ",
    "{# ",
    "{% raw -%}  ",
    "a\n\x0b{% if true %}\x0bx{% endif %}",
    "a\n\u00a0{% if true %}x{% endif %}\u2003{%- if true -%}\u3000y{% endif %}",
]

def render(source, values):
    try:
        template = chat._compile_jinja_template(source)
    except Exception as e:
        return {"error": type(e).__name__, "when": "parse", "message": str(e)}
    try:
        out = template.render(**values)
        out.encode()
        return {"output": out}
    except Exception as e:
        return {"error": type(e).__name__, "when": "render", "message": str(e)}


def cases():
    for line in CASES.strip("\n").split("\n"):
        if not line.startswith("--- "):
            yield line
    yield from BLOCKS


def main():
    golden = {"jinja2": jinja2.__version__, "values": VALUES, "cases": []}
    for source in cases():
        # Fresh values for each, as the filter indent changes a list that it is given.
        golden["cases"].append({"source": source} | render(source, json.loads(json.dumps(VALUES))))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens.json")
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        json.dump(golden, f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
