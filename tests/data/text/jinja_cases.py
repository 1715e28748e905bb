# The templates that make_jinja_vectors.py renders with Python's jinja2: each construct that a chat template can meet, and combinations
# of them made from a seed.
import random

# The variables of every case, besides messages and tools.
CONTEXT = {
    "text": "Hello, World and all",
    "spaced": "  \t padded text \n ",
    "accents": "éàü ß ŉ ǅ İ Straße 😀 中文",
    "empty": "",
    "lines": "one\ntwo\r\nthree\n\nfive",
    "digits": "42",
    "quoted": "it's \"so\" & <b>\\</b>",
    "words": ["pear", "Apple", "fig", "apple", "Banana"],
    "numbers": [3, 1, 2, -5, 10],
    "floats": [1.5, -0.5, 2.5, 1e16, 1e-7, 0.1, 100.0],
    "mixed": [1, 1.0, True, None, "1", [], {}],
    "nothing": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "seven": 7,
    "negative": -7,
    "half": 0.5,
    "big": 12345678901234567890,
    "person": {"name": "Ada", "age": 36, "tags": ["x", "y"], "nested": {"k": {"deep": 1}}},
    "people": [
        {"name": "Cy", "age": 36, "city": "Rome"},
        {"name": "ada", "age": 25, "city": "Oslo"},
        {"name": "Bo", "age": 36, "city": "Rome"},
        {"name": "Di", "city": None},
    ],
    "mapping": {"b": 2, "a": 1, "C": 3, "items": "shadow", "é": [1, {"z": None}]},
    "matrix": [[1, 2], [3, 4], []],
    "message": {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": "z"}}}]},
    "parts": [{"type": "text", "text": "first"}, {"type": "image"}, {"type": "text", "text": "second"}],
}

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  Hi there\n"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."},
    {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image"}]},
]

# Each is rendered as {{ expression }}.
EXPRESSIONS = r"""
messages[::-1]|map(attribute='role')|join(',')
messages[:0:-1]|map(attribute='role')|join(',')
messages[1:]|length
messages[:-1]|length
messages[-1]['role']
messages[-1].role
messages[-1:][0].role
messages[10:]
messages[-100:]|length
'abcd'[2:0:-1]
'abcd'[::-1]
'abcd'[:0:-1]
'abcd'[0::-1]
'abcd'[-1:-3:-1]
'abcd'[:-3:-1]
'abcd'[-10:10:2]
'abcd'[10::-2]
'abcd'[1:2:-1]
'abcd'[-10::-1]
'abcd'[:-10:-1]
'abcd'[:10:-1]
'abcd'[None:2]
'abcd'[1:3]
'abcd'[:2]
'abcd'[2:]
'abcd'[::2]
'abcd'[:]
'abcd'[-2:]
'abcd'[:-2]
'abcd'[::0]
'abcd'[-2]
'abcd'[7]
'éàü😀'[1:3]
'éàü😀'[::-1]
numbers[::-1]
numbers[3:0:-1]
numbers[:1:-1]
numbers[1::2]
numbers[:-2]
numbers[-2:]
numbers[:0]
numbers[0:-10:-1]
(1,2,3)[::-1]
(1,2,3)[1:]
(1,2,3)[:-1]
numbers[1:][0]
numbers[1:]|length
numbers[1:] + [7]
numbers[1:] == [1,2,-5,10]
numbers[5:]
numbers[100]
numbers['x']
numbers[-100]
numbers[1.0]
numbers[True]
nothing[1:]
missing[1:]
range(5)[::-1]|list
range(5)[1:3]
range(5)
range(5)|list
range(1,10,3)|list
range(10,1,-3)|list
range(0)|list
range(5)[-1]
range(5)|length
range(5)|last
3 in range(5)
text|length
text|count
missing|length
missing|count
nothing|length
seven|length
mapping|length
''|length
messages|length
accents|length
missing
missing.x
missing['x']
missing.x.y
nothing.x
nothing.x.y
nothing['x']
person.missing
person.missing.x
person['missing']
person.missing|default('d')
person.nested.k.deep
person['nested']['k']['deep']
person.missing is defined
person.name is defined
person.missing is undefined
missing is none
nothing is none
not missing
missing or 'x'
missing and 'x'
missing == missing
missing == none
missing == ''
missing != 'a'
missing < 1
missing + 'a'
'a' + missing
missing ~ 'a'
'a' ~ missing ~ none ~ true ~ 1.0
missing in 'abc'
'a' in missing
missing|list
missing|join(',')
missing|upper
missing|trim
missing|string
missing|tojson
missing|first
missing|last
missing|int
missing|float
missing|sort
missing|reverse
missing|items|list
nothing|items|list
missing|map('upper')|list
missing|select|list
missing|selectattr('a')|list
missing|default
missing|default('x')
missing|d('x')
nothing|default('x')
nothing|default('x', true)
nothing|default('x', boolean=true)
nothing|default('x', boolean=True)
''|default('x', boolean=true)
''|default('x', true)
''|default('x')
0|default('x', true)
missing|default(default_value='x')
missing|default(none)
missing|default([])|length
false|default('x', boolean=true)
text|replace('l','L')
text|replace('l','L',1)
text|replace('l','L',count=2)
text|replace('l','L',0)
text|replace('l','L',none)
text|replace('','-')
text.replace('l','L')
text.replace('l','L',1)
text.replace('l','L',-1)
text.replace('','-',3)
text.replace('o', '')
seven|replace('7','8')
'5'|int
'5.7'|int
'x'|int
'x'|int(9)
'x'|int(default=9)
'ff'|int(base=16)
'0xff'|int(0, 16)
'0b101'|int(0, 2)
'0o17'|int(0, 8)
' 12 '|int
'1_000'|int
'-3'|int
'+3'|int
5.9|int
-5.9|int
true|int
none|int
[]|int
'1e3'|int
'12abc'|int
''|int
'99999999999999999999'|int
'5'|float
'x'|float
'x'|float(1.5)
'1e3'|float
' 2.5 '|float
none|float
7|float
'inf'|float
'nan'|float
true|float
'%s-%d' % ('a', 3)
'%s' % 'a'
'%5.2f|%-5s|%05d|%x|%%' % (3.14159, 'ab', 42, 255)
'%r' % 'a'
'%(a)s' % {'a': 1}
'%s' % none
'%s %s' % ('a',)
'%d' % 'x'
'%s'|format('a')
'%s and %s'|format('a', 'b')
'%(x)s'|format(x=1)
'%03d'|format(7)
'%.3f'|format(2)
'%e'|format(12345.678)
'%g'|format(0.0001)
'%+d'|format(5)
'%c'|format(65)
'%o'|format(8)
'%X'|format(255)
'%#x'|format(255)
'%10s|'|format('r')
'%s'|format([1,'a',none,true])
'{} {}'.format('a', 1)
'{0} {1} {0}'.format('a', 1)
'{x}'.format(x=2)
'{:>5}|{:<5}|{:^5}'.format('a','b','c')
'{:.2f}'.format(3.14159)
'{:05d}'.format(42)
'{:,}'.format(1234567)
'{{}}'.format()
'{a[0]} {b.c}'.format(a=[1], b={'c': 2})
'{!r}'.format('a')
text.index('W')
text.index('zz')
text.find('W')
text.find('zz')
text.rfind('l')
text.rindex('l')
text.find('o', 5)
text.find('o', 5, 6)
text.find('')
accents.find('ß')
numbers.index(2)
numbers.index(99)
numbers.count(1)
words.index('fig')
(1,2,3).index(2)
(1,2,2).count(2)
text.count('l')
text.count('')
text.count('l', 4)
'aaa'.count('aa')
+seven
+'a'
+half
-seven
-negative
- -7
+-+7
-'a'
not not yes
not yes and no
not (yes and no)
-2**2
2**-1
2**10
2**0.5
2**3**2
7//2
-7//2
7//-2
7.0//2
7%3
-7%3
7%-3
-7.5%2
7/2
6/2
1/3
1/0
1//0
1%0
7.0/0
0.1+0.2
1e3
1.5e-3
1_000
1_000.5
0x1F
0b11
0o17
10**20
2**100
big
big + 1
9223372036854775807 + 1
-9223372036854775808 - 1
99999999999999999999
1 + true
true + true
true * 3
'a' * 3
3 * 'ab'
'a' * 0
'a' * -1
[1] * 2
2 * [1, 2]
(1,) * 2
[1] + [2]
(1,) + (2,)
[1] + (2,)
'a' + 1
1 + 'a'
'a' + 'b'
none + 1
1 + none
1.0 + 1
1 - 2.5
'a' - 'b'
[1] - [1]
{} + {}
{'a': 1}|list
1 == 1.0
1 == true
1 == '1'
0 == false
none == false
'a' == 'a'
[1,2] == [1,2]
[1] == (1,)
{'a':1} == {'a':1}
{'a':1,'b':2} == {'b':2,'a':1}
1 < 2
1 < 2.5
'a' < 'b'
'B' < 'a'
[1,2] < [1,3]
(1,2) < (1,3)
1 < 'a'
'a' > 1
none < 1
none > none
true > false
1 < 2 < 3
1 < 3 < 2
1 == 1 == 1
{'a':1} < {'b':1}
'a' in 'abc'
'' in 'abc'
1 in [1,2]
1.0 in [1]
true in [1]
'1' in [1]
'a' in {'a': 1}
1 in {'a': 1}
none in [none]
1 in 'abc'
'x' not in 'abc'
'a' in 1
'a' in none
[1] in [[1],[2]]
yes and 'x'
no or 'x'
'' or none
0 or [] or 'last'
1 and 2 and 3
none and 1
'a' if yes
'a' if no
'a' if no else 'b'
('a' if no) is undefined
'a' if no else 'b' if no else 'c'
yes
none
None
True
true
False
1.0
100.0
1e16
1e15
123456789.123456789
1e-5
0.0001
-0.0
1.0e100
floats
numbers
words
mixed
person
mapping
people
matrix
()
(1,)
(1, 'a')
[]
{}
[1, 'a', none, 1.5, true, missing]
{'a': [1, {'b': none}], 1: 2, none: 3, true: 4}
['it\'s', "say \"x\"", 'both \' "', 'tab\t', 'nl\n', 'bs\\', 'é', '\x00', '\u200b', '\u00ad', '😀']
'\n\t\r'
'a\x41\u0042\101'
'\'"\\'
'\q'
"\/"
'a' 'b'
'line\
cont'
'\N{BULLET}'
'\U0001F600'
'\a\b\f\v\0'
'{{ x }}'
'{% x %}'
text|upper
text|lower
accents|upper
accents|lower
accents|title
accents|capitalize
accents.upper()
accents.lower()
accents.title()
accents.capitalize()
accents.swapcase()
accents.casefold()
text|title
text|capitalize
"they're bill's friends"|title
"they're bill's friends".title()
"a-b c_d e.f (g) [h] 1x"|title
"a-b c_d e.f (g) [h] 1x".title()
'hELLO wORLD'|capitalize
'hELLO wORLD'|title
'hELLO wORLD'.title()
spaced|trim
spaced|trim('x')
'xxaxx'|trim('x')
'xyaxy'|trim(chars='xy')
spaced.strip()
spaced.lstrip()
spaced.rstrip()
'xxaxx'.strip('x')
'xyaxy'.strip('xy')
'xyaxy'.lstrip('xy')
'xyaxy'.rstrip('xy')
'\n a \n'.strip('\n')
'\u00a0\u2003a\u200b\u001c'.strip()
'\u00a0\u2003a\u200b\u001c'|trim
'\ufeffa'.strip()
spaced.strip(none)
text.split()
text.split(' ')
text.split(' ', 1)
text.split(',')
text.split('l', 2)
text.split(maxsplit=1)
text.split(None, 1)
text.split(sep='o', maxsplit=1)
text.split('')
' a  b '.split()
' a  b '.split(' ')
' a  b '.split(none, 1)
''.split()
''.split(',')
text.rsplit(' ', 1)
text.rsplit()
' a  b c '.rsplit(none, 1)
text.rsplit('l')
text.split('</think>')[-1]
messages[2].content.split('</think>')[-1].lstrip('\n')
messages[2].content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n')
text.partition(', ')
text.partition('zz')
text.rpartition('l')
lines.splitlines()
lines.splitlines(true)
lines.splitlines(keepends=true)
'a\x0bb\x0cc\x1cd\u2028e\x85f'.splitlines()
text.startswith('Hello')
text.startswith(('x','Hell'))
text.startswith('W', 7)
text.endswith('all')
text.endswith(('x','all'))
text.endswith(())
text.startswith('')
text.removeprefix('Hello')
text.removesuffix('all')
text.removeprefix('x')
text.join(['a','b'])
', '.join(words)
', '.join([1,2])
', '.join(('a','b'))
', '.join('abc')
''.join(words|map('upper'))
text.center(30)
text.center(30, '*')
'ab'.center(5)
'ab'.center(5, '*')
'abc'.center(6, '*')
'ab'.ljust(5, '.')
'ab'.rjust(5, '.')
'ab'.ljust(5) ~ '|'
'42'.zfill(5)
'-42'.zfill(5)
'+42'.zfill(6)
'a\tb'.expandtabs()
'a\tb'.expandtabs(4)
'abc'.isalpha()
'ab1'.isalpha()
'123'.isdigit()
'1.2'.isdigit()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
'ab1'.isalnum()
'abc'.islower()
'ABC'.isupper()
'Abc Def'.istitle()
'  '.isspace()
''.isspace()
'a_b'.isidentifier()
'a\n'.isprintable()
'abc'.isascii()
'é'.isascii()
'a'.encode('utf-8')
'abc'.translate({97: 'x'})
'abc'.maketrans('a','b')
text.unknown()
text.upper
text.format
text|unknown
text.__class__
text.__len__()
numbers.append(1)
numbers.pop()
numbers.sort()
numbers.copy()
numbers.reverse()
numbers.extend([1])
mapping.update({'x': 1})
mapping.keys()
mapping.keys()|list
mapping.values()|list
mapping.items()
person.items()|list
person.items()|first
person.keys()|first
person.keys()|list|join(',')
person.values()|list
person.get('name')
person.get('missing')
person.get('missing', 'd')
person.get('missing').x
person.get('tags')[0]
person.pop('name')
person.copy()
person.setdefault('a', 1)
mapping['items']
mapping.items
mapping|items|list
mapping|items
mapping|dictsort
mapping|dictsort(true)
mapping|dictsort(case_sensitive=true)
mapping|dictsort(by='value')
{'b': 2, 'a': 3, 'c': 1}|dictsort(by='value')
{'b': 2, 'a': 3, 'c': 1}|dictsort(false, 'value', true)
{'b': 2, 'a': 3, 'c': 1}|dictsort(reverse=true)
{'b': 2, 1: 3}|dictsort
person|list
person|first
person|join(',')
words|join
words|join(', ')
words|join(d='-')
people|join(', ', attribute='name')
numbers|join('-')
[1, none, true, 1.5, 'a']|join('|')
'abc'|join('-')
[[1],[2]]|join(',')
words|first
words|last
[]|first
[]|last
''|first
'abc'|first
'abc'|last
mapping|first
mapping|last
numbers|max
numbers|min
words|max
words|min
words|min(case_sensitive=true)
people|map(attribute='city')|list
people|max(attribute='name')
[]|max
numbers|sum
floats|sum
[]|sum
[]|sum(start=5)
people[:3]|sum(attribute='age')
people[:3]|sum('age', 10)
words|sort
words|sort(true)
words|sort(reverse=true)
words|sort(case_sensitive=true)
numbers|sort
numbers|sort(true)
people[:3]|sort(attribute='name')|map(attribute='name')|list
people[:3]|sort(attribute='age')|map(attribute='name')|list
people[:3]|sort(attribute='age,name')|map(attribute='name')|list
people[:3]|sort(attribute='age', reverse=true)|map(attribute='name')|list
people|sort(attribute='age')|map(attribute='name')|list
mixed|sort
'bca'|sort
mapping|sort
words|reverse
words|reverse|list
'abc'|reverse
numbers|reverse|list
words|unique|list
words|unique(case_sensitive=true)|list
people|unique(attribute='city')|map(attribute='name')|list
[1, 1.0, true, '1']|unique|list
words|unique
people|groupby('city')
people[:3]|groupby('city')
people[:3]|groupby('city')|map(attribute='grouper')|list
people[:3]|groupby('city')|map('first')|list
people[:3]|groupby('age')|length
people|groupby('age', default=0)|map('first')|list
numbers|batch(2)|list
numbers|batch(2, 'x')|list
numbers|batch(3, fill_with='-')|list
numbers|slice(2)|list
numbers|slice(3, 'x')|list
numbers|batch(2)
words|map('upper')|list
words|map('upper')
words|map('replace', 'p', 'P')|list
words|map('length')|list
people|map(attribute='name')|list
people|map(attribute='age')|list
people|map(attribute='age', default=0)|list
people|map(attribute='missing')|list
people|map(attribute='missing', default='none')|list
people|map('unknown')|list
parts|map(attribute='text')|list
matrix|map('first')|list
matrix|map(attribute=0)|list
matrix|map('sum')|list
[person]|map(attribute='nested.k.deep')|list
[person]|map(attribute='tags.0')|list
words|select('equalto', 'fig')|list
words|select('in', ['fig'])|list
numbers|select('odd')|list
numbers|select('even')|list
numbers|select('>', 2)|list
numbers|select('divisibleby', 5)|list
numbers|select|list
mixed|select|list
mixed|reject|list
numbers|reject('odd')|list
numbers|select('unknown')|list
people|selectattr('age')|map(attribute='name')|list
people|selectattr('age', 'defined')|map(attribute='name')|list
people|selectattr('age', 'equalto', 36)|map(attribute='name')|list
people|selectattr('age', '==', 36)|map(attribute='name')|list
people|selectattr('city', 'none')|map(attribute='name')|list
people|selectattr('name', 'in', ['Bo'])|map(attribute='name')|list
people|rejectattr('age')|map(attribute='name')|list
people|rejectattr('age', 'equalto', 36)|map(attribute='name')|list
people|selectattr('age', 'gt', 30)|map(attribute='name')|list
parts|selectattr('type', 'equalto', 'text')|map(attribute='text')|join('\n')
messages|selectattr('role', 'equalto', 'user')|list|length
messages|rejectattr('role', 'equalto', 'user')|list|length
messages|selectattr('role', 'equalto', 'user')|first
(messages|selectattr('role', 'equalto', 'system')|list)[0].content
messages|selectattr('role', 'equalto', 'user')|length
[person]|selectattr('nested.k.deep', 'equalto', 1)|list|length
2.5|round
3.5|round
2.675|round(2)
2.5|round(0, 'ceil')
2.5|round(0, 'floor')
-2.5|round
2.345|round(1, 'ceil')
1234.5|round(-2)
42|round
42.55|round(1, method='floor')
2.5|round(method='bad')
'a'|round
2.5|round|int
-5|abs
-5.5|abs
'a'|abs
7|string
1.0|string
none|string
true|string
[1]|string
words|string
'abc'|list
mapping|list
person.tags|list
5|list
none|list
(1,2)|list
text|wordcount
accents|wordcount
"don't stop-now x_y"|wordcount
''|wordcount
text|truncate(10)
text|truncate(10, true)
text|truncate(10, true, '..')
text|truncate(length=12, killwords=false, end='!')
text|truncate(18)
text|truncate(18, leeway=0)
text|truncate(5, true, '')
text|truncate
text|truncate(10, leeway=0)
text|truncate(2)
text|center(30)
text|center(width=30)
'ab'|center(5)
'ab'|center(6) ~ '|'
'abc'|center(6) ~ '|'
'ab'|center ~ '|'
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, true, true)
lines|indent(width=2, first=true, blank=true)
lines|indent('>>')
lines|indent('--', first=true)
''|indent(2, true)
text|wordwrap(8)
text|wordwrap(8, true, '|')
'a verylongwordhere b'|wordwrap(5)
'a-b-c-d'|wordwrap(3)
text|escape
quoted|e
quoted|escape
quoted|forceescape
quoted|safe
quoted|safe + '<'
quoted|safe ~ '<'
'<' + quoted|safe
'<' ~ quoted|safe
('<b>'|safe) + '<i>'
('<b>'|safe) ~ '<i>' ~ 1
('<b>'|safe)|upper
('<b>'|safe)|length
('<b>'|safe)|replace('<', '[')
('<b>'|safe).replace('<', '<<')
('<b>'|safe) == '<b>'
('<b>'|safe) is string
('<b>'|safe)|string + '<'
('<b>'|safe)|tojson
[('<b>'|safe)]
('%s'|safe) % '<'
('<b>'|safe) * 2
('a,b'|safe).split(',')
('<b>'|safe)[0] + '<'
'<'|e + '>'
'<'|e ~ '>'
[('<b>'|safe), '<i>']|join
[('<b>'|safe), '<i>']|join('<')
('<b>'|safe).join(['<', '>'])
('<b>'|safe).format('<')
('<b>'|safe).upper() + '<'
('<b>'|safe).strip() + '<'
quoted|striptags
'<p>a  b</p>\n<!-- c -->d &amp; e'|striptags
quoted|urlencode
{'a': 'b c', 'd': 1}|urlencode
'a/b ?&é'|urlencode
'see http://x.org ok'|urlize
{'class': 'a', 'id': none}|xmlattr
1000|filesizeformat
1500000|filesizeformat
1500000|filesizeformat(true)
person|pprint
words|pprint
'abc'|random
'a'|attr('upper')
person|attr('name')
person|attr('items')
text|lower|title|upper
[1,2,3]|tojson
person|tojson
mapping|tojson
quoted|tojson
accents|tojson
accents|tojson(ensure_ascii=true)
person|tojson(indent=2)
person|tojson(indent=0)
person|tojson(indent=none)
person|tojson(indent='\t')
person|tojson(true)
[]|tojson(indent=2)
{}|tojson(indent=2)
[[], {}, [[]]]|tojson(indent=1)
mapping|tojson(separators=(',', ':'))
mapping|tojson(separators=(',', ':'), indent=1)
mapping|tojson(sort_keys=true)
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
{(1,2): 3}|tojson
floats|tojson
1e100|tojson
('inf'|float)|tojson
(1,2)|tojson
range(3)|tojson
words|map('upper')|tojson
[missing]|tojson
person|tojson(-1)
person|tojson(indent=-1)
person|tojson(bogus=1)
person|tojson|length
'a\x7f\u2028\x01/'|tojson
big|tojson
none is none
1 is number
1.5 is number
true is number
'1' is number
1 is integer
true is integer
1.0 is integer
1.0 is float
true is boolean
1 is boolean
true is true
1 is true
false is false
0 is false
'a' is string
1 is string
[] is sequence
{} is sequence
'a' is sequence
1 is sequence
missing is sequence
missing is iterable
missing is mapping
missing is string
range(3) is sequence
range(3) is iterable
(words|map('upper')) is sequence
(words|map('upper')) is iterable
{} is mapping
[] is mapping
[] is iterable
'a' is iterable
1 is iterable
none is iterable
none is sequence
text.upper is callable
range is callable
text is callable
3 is odd
3 is even
3.0 is odd
'a' is odd
10 is divisibleby 5
10 is divisibleby(3)
'A' is upper
'a' is lower
'a1' is lower
'1' is lower
1 is eq 1
1 is equalto 1
1 is sameas 1
1 is sameas true
none is sameas none
'a' is sameas 'a'
1 is ne 2
1 is lt 2
1 is le 1
2 is gt 1
2 is ge 3
2 is greaterthan 1
2 is lessthan 1
'a' is in 'abc'
'a' is in ['a']
'x' is not in 'abc'
1 is not none
missing is not defined
1 is not number
text is filter
'upper' is filter
'nope' is filter
'odd' is test
text is escaped
('a'|safe) is escaped
1 is unknown
not missing is defined
missing is defined and missing
message.content is none
message.content is not none
message.tool_calls is defined and message.tool_calls is not none
message.tool_calls|length > 0
message.missing|length > 0
message.tool_calls[0].function.arguments|tojson
message.tool_calls[0]['function']['arguments'].items()|list
message['content'] or ''
(message.content or '')|trim
'a' ~ 1 ~ none ~ true ~ [1] ~ {'a': 'b'}
1 ~ 2
1.0 ~ ''
dict(a=1, b=2)
dict([('a', 1)])
dict(person, x=1)|list
dict()
namespace(a=1)
namespace(a=1).a
namespace(a=1).b
namespace(a=1)['a']
namespace({'a': 2}).a
joiner(',')
cycler('a','b').next()
lipsum(1)|length > 0
range(1.5)
range('a')
range(1, none)
range(200000)|length
loop
self
super
caller
varargs
true.x
seven.x
seven.real
seven.bit_length()
half.is_integer()
(5).x
words.0
words[0].1
person.tags.0
person.tags[-1]
mapping['é'][1].z
mapping.b
mapping.C
matrix[0][1]
matrix[2][0]
text[0]
text[-1]
text['0']
text[0][0]
words[0:2][1]
{'a': 1}.a
{'a': 1}['a']
[1,2,3][1]
(1,2)[0]
'abc'.upper()[0]
{'a': 1, 'a': 2}
{'keys': 1}.keys
{'get': 1}.get('get')
person == {'name': 'Ada'}
1 if missing else 2
1 if [] else 2
1 if {} else 2
1 if '0' else 2
1 if 0.0 else 2
1 if range(0) else 2
1 if (words|map('upper')) else 2
1 if ('')|safe else 2
1 if namespace() else 2
1, 2
'a', 'b'
(1)
((1, 2), 3)
yes is true and no is false
1 + 2 * 3 - 4 / 2
(1 + 2) * 3
'a' ~ 1 + 2
1 + 2 ~ 3
2 * 3 ~ 4
10 - 5 - 2
2 ** 3 * 2
7 // 2 * 2
-3|abs
-(3)|string
1 - -1
1 < 2 and 2 < 3
not 1 == 2
'a' in 'ab' and 'b' in 'ab'
'a' not in 'ab' or true
1 in [1] == true
seven|string|length
seven ~ ''|length
'a'|upper ~ 'b'|upper
text is string and text|length > 3
words|join(', ')|upper|replace(',', ';')
'abc' if 'a' in text|lower else 'z'
words is iterable and words is not string and words is not mapping
[x for x in words]
lambda x: x
text.split(',')[0].strip().upper()
text|length is divisibleby 2
text|length % 2
(text|length) % 2 == 0
loop.index
strftime_now
raise_exception
raise_exception('no')
bos_token ~ eos_token
text.encode
''.join(['a', none])
text.strip().split(' ')|map('upper')|join('_')
1 is sameas(1.0)
person is mapping and 'name' in person
'name' in person.keys()
36 in person.values()
('name', 'Ada') in person.items()
person.keys() == ['name']
person.keys()|length
person.items()|length
person.items()|last
'a'.__add__('b')
'abc'.__contains__('a')
person.__getitem__('name')
(1).__class__
text|attr('__class__')
none|default('x')|upper
(none)|upper
none|trim
5|upper
5|trim
true|lower
none|lower
[1]|upper
none|capitalize
none|replace('N', 'M')
none|title
none|wordcount
none|indent
5|reverse
5|first
5|join
none|join
none|first
none|sum
none|sort
none|tojson
none|map('upper')|list
none|selectattr('a')|list
none|batch(2)|list
none|unique|list
none|min
none|dictsort
'{:0>5}'.format(-3)
'{:>05}'.format(-3)
'{:0>8.2f}'.format(-3.5)
'{:0>5}'.format('-3')
'{:0<5}'.format(-3)
'{:0^7}'.format(-3)
'{:<05}'.format(3)
'{:0=6}'.format(-3)
'{:x=+6}'.format(3)
'{:#010x}'.format(255)
'{:0>#10x}'.format(255)
'{:010,}'.format(-12345)
'{:08.1f}'.format(-2.25)
'{:6}|{:<6}'.format(-1.5, 2.5)
'%05d|%+05d|%-05d|%05s' % (-3, 3, -3, 'a')
'%05.1f|%05.3d|%#06x' % (-2.25, -5, 255)
'%s' % missing
'%s %s' % (missing, 1)
'abc' % missing
'abc' % range(3)
'{0[-1]}'.format([1, 2])
'{0[1]}'.format([1, 2])
'{a[-1]}'.format(a={'-1': 5})
('aaa bbb ccc ddd eee'|safe)|truncate(8, true, '<>')
('aaa bbb ccc ddd eee'|safe)|truncate(8)|list|tojson
[('aaa bbb ccc ddd eee'|safe)|truncate(8)]
'aaa bbb ccc ddd'|truncate(8, true, '<>'|safe)
'upper' is filter
'nothing' is filter
namespace(x=1)._x
namespace(_x=1).x
namespace(__x=1).x
namespace({'a': 1}, b=2).b
{'__foo': 1}.__foo
{'__foo': 1}['__foo']
{'__foo': 1}.__foo is defined
{'_foo': 1}._foo
{'__class__': 1}.__class__ is defined
{'__class__': 1}['__class__']
[1].__foo is defined
dict.fromkeys(['a', 'b'], 1)
dict(person, z=1)|length
range(0, 10, 3)[::2]
range(10)[::-3]|list
range(0, 10, 3).index(6)
range(0, 10, 3).count(4)
range(10).index(4.0)
4 in range(0, 10, 2)
range(3) == range(0, 3, 1)
[missing] == [missing]
[1, 2] in [[1, 2]]
[{}, {}]|sort
words|map('upper')|first
[[1], {}]|map('first')|first
[{'a': {'b': 1}}, {}]|map(attribute='a.b')|first
[{'a': {'b': 1}}, {}]|selectattr('a.b')|first
people|map(attribute='name')|first
words|unique|first
numbers|select|first
words|reverse|first
words|batch(2)|first
words|slice(2)|first
mapping|items|first
'x'.join(words|map('upper'))
('<b>'|safe).join(words|map('upper'))
words|join('-', attribute=0)
'12'|int(base=16)
'7fffffffffffffffffffffffffffffff'|int(base=16)
'ab\tc\n\td'.expandtabs(4)
' a b  c '.rsplit(none, 1)
'a b c'.split(none, 1)
' a b  c '.rsplit()
'xxabxx'.strip('x')
'abcabc'.strip('cab')
'a\r\nb\x1cc\u2028d\n'.splitlines()
'a\r\nb\x1cc\u2028d\n'.splitlines(true)
'a\r\nb\n'|indent(2)
'ab'|safe|last|tojson
[('ab'|safe)|last]
[('ab'|safe)|first]
[(('ab'|safe)|list)]
[('a,b'|safe).split(',')]
[('ab'|safe)[0], ('abc'|safe)[1:], ('abc'|safe)[::-1]]
'héllo'[1:3]
'héllo'[-2:]
'héllo'[3:1]
'héllo'[::2]
'héllo'[1]
{'b': 1, 'a': [{}, []]}|tojson(sort_keys=true, indent=2)
[1, 2]|tojson(separators=[';', '='])
'\x00\x7f\x80é😀'|tojson(ensure_ascii=true)
[1, 2]|tojson(indent='--')
-0
-0.0
loop is defined
'%c%c' % (65, 'é')
'%.2s|%r' % ('abc', 'a')
'%(a)s %(a)d' % {'a': 1}
'%x %X %o' % (255, 255, 8)
'%d %i' % (3.9, -3.9)
'%%' % ()
""" .strip("\n").replace("'line\\\ncont'", "'line\x00cont'").split("\n")
EXPRESSIONS = [expression.replace("\x00", "\\\n") for expression in EXPRESSIONS if expression]

# Whole templates. CR, LF and tab are written as in Python.
TEMPLATES = [
    # Line ends: jinja2 reads CRLF and CR as LF, in text, strings and raw blocks, and drops one at the end of the template.
    "a\r\nb\r\n",
    "a\rb\r",
    "a\n\n",
    "a\r\n\r\n",
    "\r\n",
    "{% if yes %}\r\nx\r\n{% endif %}\r\ny\r\n",
    "a\r\n  {% if yes %}\r\n  x\r\n  {%- endif %}\r\ny",
    "{{ 'a\r\nb'|tojson }}",
    "{{ 'a\rb'|tojson }}",
    "{% raw %}\r\n{{ x }}\r\n{% endraw %}\r\nz",
    "{# c #}\r\nx",
    "{% set x = 1 %}\r{{ x }}\r",
    "{{ lines }}",
    "{{ text }}\n",
    "{{ text }}\n\n",
    "x\u2028y\x85z\x0b\x0c",
    # Whitespace control.
    "  {% if yes %}\n  x\n  {% endif %}\n  y",
    "  {%- if yes %}\n  x\n  {%- endif %}\n  y",
    "  {%- if yes -%}\n  x\n  {%- endif -%}\n  y",
    "  {%+ if yes %}\n  x\n  {%+ endif %}\n  y",
    "{% if yes +%}\nx{% endif +%}\ny",
    "a {{- text -}} b",
    "a {{ text -}}\n\n b",
    "a\n\n {{- text }}\n b",
    "a {#- c -#} b",
    "a\n  {# c #}\n  b",
    "a\n  {#+ c #}\n  b",
    "a\n\t{% set x = 1 %}\t\nb",
    "a\n  {{ seven }}\n  b",
    "a {% if yes %} b {% endif %} c",
    "{%- for x in numbers -%}\n {{ x }} \n{%- endfor -%}",
    "{%- for x in numbers %}\n{{ x }}\n{%- endfor %}\n",
    "{% for x in numbers %}\n  {{ x }}\n{% endfor %}\nend\n",
    "\u00a0{%- if yes %}x{% endif %}",
    "\u00a0\n\u00a0{% if yes %}x{% endif %}",
    "{% raw %}{{ x }}{% y %}{# z #}{% endraw %}",
    "a{%- raw -%} {{ x }} {%- endraw -%} b",
    "  {% raw %}\n x {% endraw %}\n y",
    "a {% raw %} {% endraw %} b",
    "{# {{ x }} {% y %} #}a",
    "{# a #} b #}",
    "{{ '}}' }}{{ '%}' }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}}}",
    "{{{'a': 1}.a}}",
    "{ { } } {x} {",
    "{%if yes%}x{%endif%}",
    "{% if yes%}x{%endif %}",
    "# line\n## comment\n% x",
    "{{ text\n|\nupper }}",
    "{%\nif yes\n%}x{%\nendif\n%}",
    "",
    " ",
    "\n",
    # Statements.
    "{% if missing %}a{% elif no %}b{% elif yes %}c{% else %}d{% endif %}",
    "{% if not missing %}a{% endif %}",
    "{% if missing.x %}a{% endif %}",
    "{% if person.missing and person.missing.x %}a{% else %}b{% endif %}",
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set s = messages[0].content %}{% else %}{% set rest = messages %}{% endif %}{{ s }}{{ rest|length }}",
    "{% set x = 1 %}{% for y in numbers %}{% set x = y %}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for y in numbers %}{% set ns.x = y %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|",
    "{% set ns = namespace(l=[]) %}{% for y in numbers %}{% set ns.l = ns.l + [y] %}{% endfor %}{{ ns.l }}",
    "{% set person.x = 1 %}",
    "{% set missing.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1, 2] %}{{ a }}{{ b }}",
    "{% set a, b = [1, 2, 3] %}{{ a }}{{ b }}",
    "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x %}a{{ seven }}{% endset %}{{ x }}|{{ x|length }}",
    "{% set x | upper %}a{{ seven }}{% endset %}{{ x }}",
    "{% set x %}<{% endset %}{{ x ~ '>' }}{{ x + '>' }}{{ x is string }}",
    "{% set x = '<' %}{% set y %}{{ x }}{% endset %}{{ y|e }}",
    "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% if no %}{% set x = 1 %}{% endif %}{{ x }}|",
    "{% set text = 'b' %}{% if yes %}{% set text = text ~ 'c' %}{% endif %}{{ text }}",
    "{% set text = text ~ 'c' %}{{ text }}",
    "{% for x in numbers %}{% if x == 2 %}{% set text = 'new' %}{% endif %}{{ text }}{% endfor %}{{ text }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}|",
    "{% with a = 1 %}{% with b = a %}{{ b }}{% endwith %}{% endwith %}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}|",
    "{% filter upper %}a{{ text }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aa{% endfilter %}",
    "{% filter trim %}  a {% endfilter %}|",
    "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% do numbers.append(3) %}",
    "{% generation %}a{% endgeneration %}",
    "  {% generation %}\n  a\n  {%- endgeneration %}\n b",
    "{%- generation -%} a {%- endgeneration -%} b",
    "{% generation %}{% set g = 1 %}{{ g }}{% endgeneration %}{{ g }}|",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}",
    "{% autoescape true %}{{ '<' }}{% endautoescape %}",
    "{% block b %}x{% endblock %}",
    "{% block b %}{{ text }}{% endblock b %}",
    "{% block b scoped %}x{% endblock %}{{ self.b() }}",
    "{% include 'x' %}",
    "{% include 'x' ignore missing %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% trans %}x{% endtrans %}",
    "{% debug %}",
    "{% unknown %}",
    # Loops.
    "{% for x in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in numbers %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in numbers %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in numbers %}{{ loop.changed(x > 1) }}{% endfor %}",
    "{% for x in numbers %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in numbers if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ loop.last }};{% endfor %}",
    "{% for x in numbers if x > 100 %}x{% else %}none{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in missing %}x{% else %}none{% endfor %}",
    "{% for x in nothing %}x{% else %}none{% endfor %}",
    "{% for x in seven %}x{% endfor %}",
    "{% for x in missing.y %}x{% endfor %}",
    "{% for c in 'héy' %}{{ c }}.{% endfor %}",
    "{% for k in mapping %}{{ k }}.{% endfor %}",
    "{% for k, v in person.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in person|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in mapping|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in person|dictsort(by='key') %}{{ k }};{% endfor %}",
    "{% for k, v in mapping.items() %}{{ k }}{% endfor %}",
    "{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a in 1, 2, 3 %}{{ a }}{% endfor %}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}",
    "{% for m in messages[::-1] %}{{ loop.index }}{{ m.role }}{{ loop.last }}{% endfor %}",
    "{% for m in messages|reverse %}{{ loop.index }}{{ m.role }}{{ loop.length }}{% endfor %}",
    "{% for x in numbers|map('string') %}{{ loop.index }}{{ loop.last }}{{ x }}{% endfor %}",
    "{% for x in range(3) %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% for x in range(3, 0, -1) %}{{ x }}{% endfor %}",
    "{% for x in numbers %}{% for y in numbers[:2] %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in numbers %}{% set outer = loop %}{% for y in numbers[:2] %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in matrix recursive %}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for loop in numbers %}{{ loop }}{% endfor %}",
    "{% for x in numbers %}{% endfor %}{{ x }}|",
    "{% for x in numbers %}{{ x }}{% endfor %}{{ loop }}|",
    "{% for text in words %}{{ text }}{% endfor %}{{ text }}",
    "{% for x in numbers %}{% set y = x %}{{ y }}{% endfor %}{{ y }}|",
    "{% for g in people[:3]|groupby('city') %}{{ g.grouper }}:{{ g.list|length }};{% endfor %}",
    "{% for city, group in people[:3]|groupby('city') %}{{ city }}:{{ group|map(attribute='name')|join(',') }};{% endfor %}",
    "{% for row in numbers|batch(2, 0) %}{{ row|join('-') }};{% endfor %}",
    "{% for row in numbers|slice(2) %}{{ row|join('-') }};{% endfor %}",
    "{% for x in numbers %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for m in messages %}{{ loop.index0 % 2 == 0 }}{{ (m['role'] == 'user') != (loop.index0 % 2 == 0) }}{% endfor %}",
    "{% for m in messages %}{% set last = m %}{% if loop.nextitem is defined and loop.nextitem.role == 'user' %}U{% endif %}{% endfor %}",
    "{% for m in messages %}{{ messages[loop.index0 - 1].role }}{{ messages[loop.index].role }}{% endfor %}",
    "{% for part in parts %}{% if part.type == 'text' %}{{ part.text }}{% else %}<{{ part['type'] }}>{% endif %}{% endfor %}",
    "{% for x in numbers recursive %}{{ loop.depth }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{% for x in numbers %}{{ c.next() }}{% endfor %}",
    "{% set j = joiner(', ') %}{% for x in numbers %}{{ j() }}{{ x }}{% endfor %}",
    # Macros.
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}",
    "{% macro m(a, b=a ~ 'x', c=b|length) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}",
    "{% set a = 9 %}{% macro m(b=a) %}{{ b }}{% endmacro %}{{ m() }}{% set a = 8 %}{{ m() }}",
    "{% macro m(b=c, c=1) %}{{ b }}{{ c }}{% endmacro %}{{ m() }}",
    "{% macro m(a=[]) %}{{ a|length }}{% endmacro %}{{ m() }}{{ m([1]) }}",
    "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=1) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(a=1) }}",
    "{% macro m(a) %}{{ caller() }}{{ a }}{% endmacro %}{% call m(1) %}x{% endcall %}",
    "{% macro m() %}{{ caller(5) }}{% endmacro %}{% call(v) m() %}<{{ v }}>{% endcall %}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}{{ text }}{% endmacro %}{{ m() }}",
    "{% set y = 1 %}{% macro m() %}{{ y }}{% endmacro %}{% set y = 2 %}{{ m() }}",
    "{% macro m() %}{{ y }}{% endmacro %}{% set y = 2 %}{{ m() }}",
    "{% macro m() %}{% set y = 1 %}{% endmacro %}{{ m() }}{{ y }}|",
    "{% for x in numbers %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() %} a {% endmacro %}[{{ m()|trim }}]{{ m() ~ 'b' }}{{ m() + 'c' }}{{ m()|length }}",
    "{% macro m() %}<{% endmacro %}{{ m() ~ '>' }}{{ m() + '>' }}{{ m()|e }}",
    "{% macro m() -%}\n a\n{%- endmacro %}{{ m() }}",
    "{% macro m(x) %}{{ x.y }}{% endmacro %}{{ m({'y': 1}) }}{{ m(person) }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m.name }}{{ m.arguments }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}x{% endmacro %}{{ a() }}",
    "{% macro m() %}{{ messages|length }}{% endmacro %}{{ m() }}",
    "{% macro m(text) %}{{ text }}{% endmacro %}{{ m('in') }}{{ text }}",
    "{% macro m() %}{% for x in numbers %}{{ loop.index }}{% endfor %}{% endmacro %}{{ m() }}",
    "{% for x in numbers %}{% macro m() %}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(*a) %}{% endmacro %}",
    "{% macro m(a, a) %}{% endmacro %}",
    "{% macro f(v) %}{% if v is mapping %}{{ '{' }}{% for k, w in v|dictsort %}{{ k }}:{{ f(w) }}{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}{% elif v is string %}'{{ v }}'{% elif v is iterable %}[{% for w in v %}{{ f(w) }}{% endfor %}]{% else %}{{ v }}{% endif %}{% endmacro %}{{ f(person) }}",
    # A variable of the template's own that a loop or macro reads before it is set.
    "{% for x in [1] %}{{ text }}{% endfor %}{% set text = 'b' %}{{ text }}",
    "{% macro m() %}{{ text }}{% endmacro %}{{ m() }}{% set text = 'b' %}{{ m() }}",
    "{% macro m() %}{{ text }}{% endmacro %}{{ m() }}{% set text = text ~ 'b' %}{{ m() }}",
    "{% macro m() %}{{ text }}{% endmacro %}{{ m() }}{% if yes %}{% set text = 'b' %}{% endif %}{{ m() }}",
    "{% macro m() %}{{ words }}{% endmacro %}{{ m() }}{% set words %}b{% endset %}{{ m() }}",
    # Calls with stars.
    "{{ '{} {}'.format(*[1, 2]) }}",
    "{{ dict(**{'a': 1}) }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}",
    # Names.
    "{% set é = 1 %}{{ é }}",
    "{% set _x1 = 1 %}{{ _x1 }}",
    "{% set true = 1 %}",
    "{% set none = 1 %}",
    "{% set loop = 1 %}{{ loop }}",
    "{% set range = 1 %}{{ range }}",
    "{{ (text }}",
    "{{ text | }}",
    "{{ 1 + }}",
    "{{ }}",
    "{% if %}x{% endif %}",
    "{% for x %}{% endfor %}",
    "{% endif %}",
    "{{ 'unclosed }}",
    "{{ a b }}",
    "{{ 1 === 1 }}",
    "{{ a && b }}",
    "{{ !yes }}",
    "{{ yes ? 1 : 2 }}",
    "{{ person?.name }}",
    "{{ text|upper() }}",
    "{{ text.upper() () }}",
    "{% set x = {'a': 1,} %}{{ x }}{{ [1,] }}{{ (1,) }}",
    "{% set x = [\n1,\n2\n] %}{{ x }}",
    "{% set x = 'multi\nline' %}{{ x }}",
    "{% set x = 'tab\there' %}{{ x }}",
    "{%- set x = namespace(found=false) -%}{%- for m in messages -%}{%- if m.role == 'user' and not x.found -%}{%- set x.found = true -%}{{ m.content }}{%- endif -%}{%- endfor -%}",
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}",
    "{% for m in messages if m.content is string %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim + '<|im_end|>' }}{% endfor %}",
    "{{ bos_token }}{% for m in messages %}{% if m['content'] is string %}{{ m.content|trim }}{% else %}{% for c in m.content if c.type == 'text' %}{{ c.text }}{% endfor %}{% endif %}{{ eos_token }}{% endfor %}",
    "{% if tools %}{{ tools|tojson }}{% else %}no tools{% endif %}{% if tools is none %}none{% endif %}{% if tools is not defined %}undefined{% endif %}",
    "{% if documents is defined and documents %}d{% endif %}{% if add_generation_prompt is defined and add_generation_prompt %}g{% endif %}",
    "{{ raise_exception('a' ~ 1) }}",
    "{% if messages[0].role != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}",
    # Generators keep what was not taken, and a scope hides what it sets later.
    "{% set g = [1,2,3]|map('int') %}{{ 2 in g }}{{ g|list }}",
    "{% set g = [1,2,3,4]|map('int') %}{% for x in g %}{% if x == 2 %}{% break %}{% endif %}{% endfor %}{{ g|list }}",
    "{% set g = [1,2,3,4]|map('int') %}{% for x in g %}{{ loop.last }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}{{ g|list }}",
    "{% set g = [1,2,3,4]|map('int') %}{% for x in g %}{{ loop.length }}{{ loop.revindex }}{{ loop.nextitem }}{% endfor %}{{ g|list }}",
    "{% set g = [1,2,3]|map('int') %}{{ g|unique|first }}{{ g|list }}",
    "{% set g = [1,2,3]|map('int') %}{{ g|map('string')|first }}{{ g|list }}",
    "{% set g = [1,2,3]|select %}{{ g|select|first }}{{ g|list }}",
    "{% set g = [1,2,3,4,5]|map('int') %}{{ g|batch(2)|first }}{{ g|list }}",
    "{% set g = [1,2,3,4,5]|map('int') %}{{ g|slice(2)|first }}{{ g|list }}",
    "{% set g = [1,2,3]|map('int') %}{{ g|first }}{{ g|first }}{{ g|join }}{{ g|list }}",
    "{% set g = [1,2,3]|map('int') %}{% set a, b, c = g %}{{ a }}{{ g|list }}",
    "{% set ns = namespace(f=true) %}{% for i in [1,2] %}{% set f = ns.f %}{% set ns.f = false %}{{ f }}{% endfor %}",
    "{% set ns = namespace(a=1) %}{% set ns._x = 1 %}{{ ns.a }}",
    "{% macro m() %}{% for j in [1] %}[{{ v }}]{% endfor %}{% set v = 3 %}[{{ v }}]{% endmacro %}{% set v = 7 %}{{ m() }}",
    "{% set first = true %}{% for m in [1,2] %}{% for p in [1,2] %}{% if not first %},{% endif %}{{ p }}{% endfor %}{% set first = false %}{% endfor %}",
    "{% for i in [1,2] if v %}{{ i }}{% set v = 0 %}{% endfor %}",
    "{% for i in [1,2] %}{% for j in [1] %}{{ seven }}{% endfor %}{% if i == 1 %}{% set seven = i %}{% else %}{% set seven = 5 %}{% endif %}{% endfor %}",
    "{% if false %}{% set seven = 1 %}{% endif %}{% for j in [1] %}{{ seven }}{% endfor %}",
    "{% macro a() %}{{ seven }}{% endmacro %}{% if true %}{% set seven = 1 %}{% endif %}{{ a() }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% for i in [1,2] %}{% macro m() %}[{{ seven }}]{% endmacro %}{{ m() }}{% set seven = i %}{{ m() }}{% endfor %}",
    "{% for x in [1] recursive %}{{ x }}{% if x < 3 %}{{ loop([x + 1]) }}{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for x in [1,1,2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1,2] %}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endfor %}",
    "{% for i in [1,2] %}{% with %}[{{ seven }}]{% endwith %}{% set seven = 3 %}[{{ seven }}]{% endfor %}",
    "{% for i in [1,2] %}{% set z %}[{{ seven }}]{% endset %}{{ z }}{% set seven = 3 %}[{{ seven }}]{% endfor %}",
    "{% for i in [1,2] %}{% generation %}[{{ seven }}]{% endgeneration %}{% set seven = 3 %}[{{ seven }}]{% endfor %}",
    "{% for i in [1,2] %}{% if i == 1 %}[{{ seven }}]{% endif %}{% set seven = 3 %}[{{ seven }}]{% endfor %}",
    "{% for i in [1,2] %}{% for j in [seven] %}{{ j }}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endfor %}",
    "{% for i in [1,2] %}{{ seven }}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endfor %}",
    "{% with %}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endwith %}",
    "{% with %}{% with %}[{{ seven }}]{% endwith %}{% set seven = 3 %}[{{ seven }}]{% endwith %}",
    "{% with %}{% set z %}[{{ seven }}]{% endset %}{{ z }}{% set seven = 3 %}[{{ seven }}]{% endwith %}",
    "{% with %}{% generation %}[{{ seven }}]{% endgeneration %}{% set seven = 3 %}[{{ seven }}]{% endwith %}",
    "{% with %}{% if i == 1 %}[{{ seven }}]{% endif %}{% set seven = 3 %}[{{ seven }}]{% endwith %}",
    "{% with %}{% for j in [seven] %}{{ j }}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endwith %}",
    "{% with %}{{ seven }}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endwith %}",
    "{% block b %}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endblock %}",
    "{% block b %}{% with %}[{{ seven }}]{% endwith %}{% set seven = 3 %}[{{ seven }}]{% endblock %}",
    "{% block b %}{% set z %}[{{ seven }}]{% endset %}{{ z }}{% set seven = 3 %}[{{ seven }}]{% endblock %}",
    "{% block b %}{% generation %}[{{ seven }}]{% endgeneration %}{% set seven = 3 %}[{{ seven }}]{% endblock %}",
    "{% block b %}{% if i == 1 %}[{{ seven }}]{% endif %}{% set seven = 3 %}[{{ seven }}]{% endblock %}",
    "{% block b %}{% for j in [seven] %}{{ j }}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endblock %}",
    "{% block b %}{{ seven }}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endblock %}",
    "{% generation %}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endgeneration %}",
    "{% generation %}{% with %}[{{ seven }}]{% endwith %}{% set seven = 3 %}[{{ seven }}]{% endgeneration %}",
    "{% generation %}{% set z %}[{{ seven }}]{% endset %}{{ z }}{% set seven = 3 %}[{{ seven }}]{% endgeneration %}",
    "{% generation %}{% generation %}[{{ seven }}]{% endgeneration %}{% set seven = 3 %}[{{ seven }}]{% endgeneration %}",
    "{% generation %}{% if i == 1 %}[{{ seven }}]{% endif %}{% set seven = 3 %}[{{ seven }}]{% endgeneration %}",
    "{% generation %}{% for j in [seven] %}{{ j }}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endgeneration %}",
    "{% generation %}{{ seven }}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endgeneration %}",
    "{% set y %}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endset %}{{ y }}",
    "{% set y %}{% with %}[{{ seven }}]{% endwith %}{% set seven = 3 %}[{{ seven }}]{% endset %}{{ y }}",
    "{% set y %}{% set z %}[{{ seven }}]{% endset %}{{ z }}{% set seven = 3 %}[{{ seven }}]{% endset %}{{ y }}",
    "{% set y %}{% generation %}[{{ seven }}]{% endgeneration %}{% set seven = 3 %}[{{ seven }}]{% endset %}{{ y }}",
    "{% set y %}{% if i == 1 %}[{{ seven }}]{% endif %}{% set seven = 3 %}[{{ seven }}]{% endset %}{{ y }}",
    "{% set y %}{% for j in [seven] %}{{ j }}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endset %}{{ y }}",
    "{% set y %}{{ seven }}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endset %}{{ y }}",
    "{% filter upper %}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endfilter %}",
    "{% filter upper %}{% with %}[{{ seven }}]{% endwith %}{% set seven = 3 %}[{{ seven }}]{% endfilter %}",
    "{% filter upper %}{% set z %}[{{ seven }}]{% endset %}{{ z }}{% set seven = 3 %}[{{ seven }}]{% endfilter %}",
    "{% filter upper %}{% generation %}[{{ seven }}]{% endgeneration %}{% set seven = 3 %}[{{ seven }}]{% endfilter %}",
    "{% filter upper %}{% if i == 1 %}[{{ seven }}]{% endif %}{% set seven = 3 %}[{{ seven }}]{% endfilter %}",
    "{% filter upper %}{% for j in [seven] %}{{ j }}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endfilter %}",
    "{% filter upper %}{{ seven }}{% for j in [1] %}[{{ seven }}]{% endfor %}{% set seven = 3 %}[{{ seven }}]{% endfilter %}",
]


# What jinja2 renders and Lorry refuses with an error: texts that are addresses in memory, and what no chat template has.
REFUSED = [
    '{{ missing|reverse }}',
    "{{ '\\N{BULLET}' }}",
    '{{ accents.casefold() }}',
    "{{ 'a'.encode('utf-8') }}",
    "{{ 'abc'.translate({97: 'x'}) }}",
    "{{ 'abc'.maketrans('a','b') }}",
    '{{ text.upper }}',
    '{{ text.format }}',
    '{{ mapping.items }}',
    '{{ mapping|items }}',
    '{{ words|reverse }}',
    '{{ words|unique }}',
    '{{ numbers|batch(2) }}',
    "{{ words|map('upper') }}",
    '{{ 1234.5|round(-2) }}',
    '{{ text|wordwrap(8) }}',
    "{{ text|wordwrap(8, true, '|') }}",
    "{{ 'a verylongwordhere b'|wordwrap(5) }}",
    "{{ 'a-b-c-d'|wordwrap(3) }}",
    "{{ ('<b>'|safe).replace('<', '<<') }}",
    "{{ ('<b>'|safe).join(['<', '>']) }}",
    "{{ ('<b>'|safe).format('<') }}",
    '{{ quoted|striptags }}',
    "{{ '<p>a  b</p>\\n<!-- c -->d &amp; e'|striptags }}",
    "{{ {'a': 'b c', 'd': 1}|urlencode }}",
    "{{ 'see http://x.org ok'|urlize }}",
    "{{ {'class': 'a', 'id': none}|xmlattr }}",
    '{{ 1000|filesizeformat }}',
    '{{ 1500000|filesizeformat }}',
    '{{ 1500000|filesizeformat(true) }}',
    '{{ person|pprint }}',
    '{{ words|pprint }}',
    "{{ 'abc'|random }}",
    "{{ 'a'|attr('upper') }}",
    "{{ person|attr('items') }}",
    "{{ 'a' is sameas 'a' }}",
    '{{ namespace(a=1) }}',
    "{{ joiner(',') }}",
    '{{ lipsum(1)|length > 0 }}',
    "{{ {'keys': 1}.keys }}",
    '{{ strftime_now }}',
    '{{ raise_exception }}',
    '{{ text.encode }}',
    "{% autoescape true %}{{ '<' }}{% endautoescape %}",
    '{% block b scoped %}x{% endblock %}{{ self.b() }}',
    '{{ self }}',
    "{{ 'urlize' is filter }}",
    "{{ '١٢'|float }}",
    "{{ '١٢'|int }}",
    "{{ [1]|map(attribute='٠')|list }}",
    "{{ 'ffffffffffffffffffffffffffffffff'|int(base=16) }}",
    "{{ 2 ** 127 }}",
    "{{ none[1:] }}",
    "{{ range(0, 1, 2 ** 62)[::2 ** 62][::2 ** 62] }}",
]


def expression(rng, depth):
    """A random expression; many of them fail, which must be equal too."""
    if depth == 0:
        return rng.choice(
            ["text", "spaced", "accents", "empty", "lines", "words", "numbers", "floats", "nothing", "yes", "no", "seven", "negative", "half",
             "person", "people", "mapping", "matrix", "missing", "messages", "person.tags", "messages[0].content", "messages[1]", "1", "0", "-3",
             "2.5", "'a'", "'l'", "'Hello'", "' '", "[]", "{}", "none", "true", "[1, 'a']", "(1, 2)", "{'a': 1}", "digits", "quoted", "mixed"])
    inner = lambda: expression(rng, rng.randrange(depth))
    index = lambda: rng.choice(["", "0", "1", "2", "3", "-1", "-2", "-3", "10", "-10"])
    kind = rng.randrange(16)
    if kind < 3:
        operator = rng.choice(["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"])
        return f"({inner()} {operator} {inner()})"
    if kind < 5:
        return f"({inner()})[{index()}:{index()}:{rng.choice(['', '1', '2', '-1', '-2', '3', '-3'])}]"
    if kind == 5:
        return f"({inner()})[{rng.choice(['0', '1', '-1', '5', chr(39) + 'name' + chr(39), chr(39) + 'role' + chr(39)])}]"
    if kind == 6:
        return f"({inner()} if {inner()} else {inner()})"
    if kind == 7:
        return f"({rng.choice(['not ', '-', '+'])}{inner()})"
    if kind < 11:
        return f"({inner()})|" + rng.choice(
            ["upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list", "string", "int", "float", "join(',')", "sort",
             "reverse", "reverse|list", "unique|list", "tojson", "tojson(indent=1)", "default('d')", "default('d', true)", "abs", "round", "round(1)",
             "replace('l', 'L')", "replace('a', 'b', 1)", "wordcount", "center(9)", "truncate(9)", "batch(2)|list", "slice(2)|list", "items|list",
             "dictsort", "map('upper')|list", "map(attribute='name')|list", "select|list", "reject|list", "selectattr('name')|list", "sum", "min",
             "max", "indent(2)", "e", "safe", "count", "groupby('age')|list", "select('string')|list", "map('length')|list", "join"])
    if kind < 14:
        return f"({inner()})." + rng.choice(
            ["upper()", "lower()", "strip()", "split()", "split(',')", "split('l', 1)", "startswith('H')", "endswith('l')", "replace('l', '')",
             "items()|list", "keys()|list", "values()|list", "get('name')", "get('x', 1)", "name", "role", "index('a')", "find('l')", "count('l')",
             "title()", "splitlines()", "lstrip('H')", "rstrip()", "isdigit()", "join(['a', 'b'])", "capitalize()", "zfill(4)", "partition(' ')"])
    if kind == 14:
        return f"({inner()} is {rng.choice(['', 'not '])}" + rng.choice(
            ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "true", "false",
             "odd", "even", "divisibleby(2)", "in [1, 2]", "equalto 1", "lower", "upper", "callable"]) + ")"
    return "[" + ", ".join(inner() for _ in range(rng.randrange(4))) + "]"


def statement(rng, depth):
    """A random piece of a template, with the line ends and whitespace marks that people write."""
    open, close = rng.choice(["{%", "{%-", "{%", "{%+"]), rng.choice(["%}", "-%}", "%}"])
    space = rng.choice(["", " ", "\n", "\r\n", "\n  ", "  ", "x", "\n\n", "\t"])
    tag = lambda words: f"{open} {words} {close}"
    body = lambda: "".join(statement(rng, depth - 1) for _ in range(rng.randrange(1, 3))) if depth else "y"
    name = lambda: rng.choice(["v", "w", "text"])
    kind = rng.randrange(16 if depth else 5)
    if kind < 2:
        return space + rng.choice(["{{ %s }}", "{{- %s }}", "{{ %s -}}"]) % expression(rng, 2)
    if kind == 2:
        return space + tag(f"set {name()} = {expression(rng, 2)}") + space
    if kind < 5:
        return space + "{{ %s }}" % name() + rng.choice(["{# c #}", "{#- c -#}", ""]) + space
    if kind == 5:
        return tag(f"set g = {expression(rng, 1)}|{rng.choice(GENERATORS)}") + "".join(rng.choice(CONSUMERS) for _ in range(3)) + "{{ g|list }}"
    if kind < 8:
        loop = rng.choice(["{{ loop.index }}", "{{ loop.last }}", "{{ x }}", "", "{% if loop.index > 1 %}{% break %}{% endif %}"])
        return space + tag(f"for x in {expression(rng, 1)}") + space + loop + body() + tag("endfor") + space
    if kind < 10:
        return space + tag(f"if {expression(rng, 2)}") + space + body() + tag("else") + body() + space + tag("endif") + space
    if kind == 10:
        return space + tag("set v") + space + body() + tag("endset") + space
    if kind == 11:
        return tag(f"macro m({rng.choice(['', 'v', 'w=v'])})") + body() + tag("endmacro") + "{{ m() }}" + body() + "{{ m(1) }}"
    if kind == 12:
        return tag(f"with {name()} = {expression(rng, 1)}") + body() + tag("endwith") + space
    if kind == 13:
        return tag("filter upper") + body() + tag("endfilter") + space
    if kind == 14:
        return tag("generation") + body() + tag("endgeneration") + space
    return tag(f"block b{rng.randrange(1000)}{rng.choice(['', ' scoped'])}") + body() + tag("endblock") + space


# What makes a generator, and what takes some of its items.
GENERATORS = ["map('string')", "map('length')", "select", "reject", "unique", "batch(2)", "slice(2)", "reverse", "items", "map(attribute='name')",
              "selectattr('name')", "map('upper')|select", "select|map('string')|unique"]
CONSUMERS = ["{{ 'fig' in g }}", "{{ 1 in g }}", "{{ g|first }}", "{{ g|select|first }}", "{{ g|map('string')|first }}",
             "{% for x in g %}{{ loop.last }}{% break %}{% endfor %}", "{% for x in g %}{% if loop.index > 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
             "{% for x in g if x %}{{ loop.length }}{{ x }}{% endfor %}", "{{ g|batch(2)|first }}", "{% for x in g %}{{ loop.nextitem }}{% endfor %}",
             "{{ g|unique|first }}", "{{ g|join(',') }}", "{{ g|length }}", ""]


def generated(seed, count):
    rng = random.Random(seed)
    for index in range(count):
        yield "{{ " + expression(rng, rng.choice([1, 2, 2, 3])) + " }}" if index % 2 else "".join(statement(rng, 2) for _ in range(3))
