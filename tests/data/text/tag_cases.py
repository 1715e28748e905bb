# Structural tags and texts, of which make_tag_vectors.py asks XGrammar whether they match.
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
SCHEMA = {"type": "json_schema", "json_schema": OBJECT}
NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
ANY = {"type": "any_text"}


def const(value):
    return {"type": "const_string", "value": value}


def regex(pattern):
    return {"type": "regex", "pattern": pattern}


def without(*excludes):
    return {"type": "any_text", "excludes": list(excludes)}


def tag(begin, content, end):
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements):
    return {"type": "sequence", "elements": list(elements)}


def either(*elements):
    return {"type": "or", "elements": list(elements)}


def triggered(triggers, *tags, **options):
    return {"type": "triggered_tags", "triggers": triggers, "tags": list(tags), **options}


def separated(separator, *tags, **options):
    return {"type": "tags_with_separator", "separator": separator, "tags": list(tags), **options}


def times(kind, content):
    return {"type": kind, "content": content}


THINK = tag("<think>", ANY, "</think>")
ADD = tag("<f=add>", SCHEMA, "</f>")
SUB = tag("<f=sub>", NUMBER, "</f>")
NOTE = tag("<n>", ANY, "</n>")
CALLS = ["", "x", "<f=add>{\"a\":1}</f>", "x<f=add>{\"a\":1}</f>", "<f=add>{\"a\":1}</f>x", "<f=sub>12</f>", "<f=sub></f>", "<f=add>{}</f>",
         "<f=", "<f", "a<b", "<f=mul>1</f>", "<f=sub>1</f><f=sub>2</f>", "<f=sub>1</f> and <f=add>{\"a\":2}</f>!", "<f=sub>1</f><f=",
         "<f=sub>1", "<f=sub>1</f", "<<f=sub>1</f>", "<f<f=sub>1</f>", "<f=sub>1</f>,<f=sub>2</f>", "\n<f=sub>1</f>\n"]

# Each: a name, a format, texts.
CASES = [
    ("const_string", const("a/b\"\\\n"), ["a/b\"\\\n", "a/b\"\\", "", "a/b\"\\\n\n"]),
    ("any_text", ANY, ["", "x", "a\nb", "\u00e4\u4e2d\U0001f600", "</think>"]),
    ("any_text without", without("stop", "<"), ["", "sto", "stop", "xstopx", "a<b", "ststo", "sstop"]),
    ("any_text of a tag", THINK, ["<think></think>", "<think>a<b</think>", "<think>a</think", "<think>a</think>b", "a", "<think>\n</think>",
                                  "<think></think></think>", "<think><</think>", "<think></</think>"]),
    ("several ends", tag("<a>", ANY, ["</a>", "</b>"]), ["<a>x</a>", "<a>x</b>", "<a>x</c>", "<a>x</a></b>", "<a></</b>"]),
    ("json_schema", SCHEMA, ['{"a":1}', '{"a":-12}', '{"a":"1"}', '{"b":1}', "{}", '{"a":1}x', ""]),
    ("json_schema in a tag", ADD, ['<f=add>{"a":1}</f>', '<f=add>{"a":1}', '{"a":1}', '<f=add></f>', '<f=add>{"a":1}</f></f>']),
    ("regex", regex("[a-c/]+(x|yz)?"), ["a", "abc/", "ax", "ayz", "axx", "", "d", "ay"]),
    ("regex with anchors", regex("^a+$"), ["a", "aa", "", "ab"]),
    ("regex in a tag", tag("<a>", regex("[0-9]{2}"), "</a>"), ["<a>12</a>", "<a>1</a>", "<a>123</a>"]),
    ("sequence", sequence(const("a"), regex("[b-d]+"), const("d!")), ["abd!", "abcdd!", "ad!", "abd", "abdd!", "abd!!"]),
    ("sequence with a schema", sequence(const("x: "), SCHEMA, const(" end")), ['x: {"a":1} end', '{"a":1} end', 'x: {"a":1}']),
    ("sequence of schemas", sequence(SCHEMA, SCHEMA), ['{"a":1}{"a":2}', '{"a":1}', '{"a":1}{"a":2}{"a":3}']),
    ("number and text", sequence(NUMBER, const("px")), ["12px", "px", "12", "12pxx", "-3px"]),
    ("text and a schema", sequence(without("{"), SCHEMA), ['{"a":1}', 'x {"a":1}', 'x{{"a":1}', "x", 'x{"a":1}x']),
    ("or", either(const("yes"), const("yesterday"), const("no")), ["yes", "yesterday", "no", "yester", "", "yesno"]),
    ("or with a schema", either(SCHEMA, NUMBER, const("none"), NOTE), ['{"a":1}', "12", "none", "non", "<n>x</n>", "<n>x", '{"a":1}none', ""]),
    ("or of one beginning", either(const("a"), sequence(const("a"), SCHEMA)), ["a", 'a{"a":1}', '{"a":1}', ""]),
    ("or of texts", either(ANY, const("x")), ["", "x", "xy"]),
    ("triggered_tags", triggered(["<f="], ADD, SUB), CALLS),
    ("triggered_tags, at least one", triggered(["<f="], ADD, SUB, at_least_one=True), CALLS),
    ("triggered_tags, one at most", triggered(["<f="], ADD, SUB, stop_after_first=True), CALLS),
    ("triggered_tags, one", triggered(["<f="], ADD, SUB, at_least_one=True, stop_after_first=True), CALLS),
    ("triggered_tags with excludes", triggered(["<f="], ADD, SUB, excludes=["and", "!"]), CALLS),
    ("triggered_tags of text", triggered(["<f="], tag("<f=a>", ANY, "</f>"), tag("<f=b>", regex("[0-9]+"), "")),
     ["", "<f=a>x</f>y", "<f=b>12", "x<f=b>12 <f=a></f>", "<f=b>", "<f=a><f=</f>", "<f=c>"]),
    ("several triggers", triggered(["<f=", "<n"], SUB, NOTE), ["x", "<n>y</n>", "<f=sub>1</f><n>y</n>z", "<n", "<n>", "<f<n></n>", "<nn></n>"]),
    ("a trigger that is a whole begin", triggered(["<n>"], NOTE), ["", "x<n>y</n>z", "<n>y", "<n", "<n></n><n></n>"]),
    ("tags_with_separator", separated(",", ADD, SUB), CALLS),
    ("tags_with_separator, at least one", separated(",", ADD, SUB, at_least_one=True), CALLS),
    ("tags_with_separator, one at most", separated(",", ADD, SUB, stop_after_first=True), CALLS),
    ("tags_with_separator, one", separated(",", ADD, SUB, at_least_one=True, stop_after_first=True), CALLS),
    ("tags without separator", separated("", SUB, NOTE), ["", "<f=sub>1</f><n>x</n>", "<f=sub>1</f>,<n>x</n>", "<n></n><n>y</n>", "<n>"]),
    ("optional", sequence(times("optional", SCHEMA), const("!")), ["!", '{"a":1}!', '{"a":1}', '{"a":1}{"a":1}!']),
    ("star", times("star", SUB), ["", "<f=sub>1</f>", "<f=sub>1</f><f=sub>2</f>", "<f=sub>1</f>x"]),
    ("plus", times("plus", const("ab")), ["", "ab", "abab", "aba"]),
    ("thought and calls", sequence(THINK, triggered(["<f="], ADD, SUB)),
     ["<think>x</think>", "<think>x</think>y<f=sub>1</f>", "x<f=sub>1</f>", "<think><f=sub>x</think><f=sub>1</f>z",
      "<think>x</think><f=sub>x</f>", "<think>x"]),
    ("calls in a tag", tag("<r>", triggered(["<f="], ADD, SUB), "</r>"),
     ["<r></r>", "<r>x</r>", "<r>x<f=sub>1</f>y</r>", "<r>x<f=sub>1</f>", "<r></r>x", "<r><f=sub>1</f><f=add>{\"a\":1}</f></r>", "<r><f=x</r>"]),
    ("a list in a tag", tag("[", separated(", ", SUB, NOTE), "]"),
     ["[]", "[<f=sub>1</f>]", "[<f=sub>1</f>, <n>]</n>]", "[<f=sub>1</f>,]", "[<n>]</n>", "[, ]"]),
    ("tags in tags", tag("<a>", sequence(tag("<b>", ANY, "</b>"), either(SUB, const("-"))), "</a>"),
     ["<a><b></a></b>-</a>", "<a><b>x</b><f=sub>7</f></a>", "<a><b>x</b></a>", "<a>-</a>", "<a><b>x</b>-</a></a>"]),
    ("tags whose begins begin alike", either(tag("<f", SCHEMA, ">"), tag("<fn", SCHEMA, ">")),
     ['<f{"a":1}>', '<fn{"a":1}>', '<fnn{"a":1}>', '<f{"a":1}', '{"a":1}']),
]


class Generator:
    """Makes formats, and texts of which many match them. No end overlaps itself: free text ends at the first one in Lorry only."""

    PIECES = ["<a>", "</a>", "<b>", "</b>", "<", "</", "a", "x", "12", '{"a":1}', ",", "```"]
    ENDS = ["</a>", "</b>", ["</a>", "</b>"], "x", ";", ""]
    BEGINS = ["<a>", "<b>", "<a", "ab", ""]
    TRIGGERS = [["<a", "<b"], ["<a"], ["<b>"], ["ab"]]
    PATTERNS = {"[a-c]+": ["a", "cb"], "a|ab|x": ["a", "ab", "x"], "[0-9]{1,2}": ["7", "42"], "(ab)*": ["", "abab"]}
    SCHEMAS = [(OBJECT, ['{"a":1}', '{"a":-35}']), ({"type": "integer"}, ["0", "12"]), ({"type": "boolean"}, ["true"]),
               ({"enum": ["x", "<a>"]}, ['"x"', '"<a>"'])]

    def __init__(self, random):
        self.random = random

    def chance(self, percent):
        return self.random.random() * 100 < percent

    def free(self, most=3):
        return "".join(self.random.choices(self.PIECES, k=self.random.randint(0, most)))

    def format(self, depth):
        """A format, and a function that makes a text."""
        leaves = [self.constant, self.any_text, self.pattern, self.schema]
        inner = [self.sequence, self.either, self.one_tag, self.one_tag, self.triggered_tags, self.separated_tags, self.repeated]
        return self.random.choice(leaves + (inner * 2 if depth > 0 else []))(depth)

    def constant(self, _):
        value = self.random.choice(["a", "aa", "<a>", "x12", "", "ab"])
        return const(value), lambda: value

    def any_text(self, _):
        return without(*self.random.choice([[], [], ["<a>"], ["x"], ["{", "<"]])), self.free

    def pattern(self, _):
        one, texts = self.random.choice(list(self.PATTERNS.items()))
        return regex(one), lambda: self.random.choice(texts)

    def schema(self, _):
        one, texts = self.random.choice(self.SCHEMAS)
        return {"type": "json_schema", "json_schema": one}, lambda: self.random.choice(texts)

    def some(self, depth):
        return [self.format(depth - 1) for _ in range(self.random.randint(1, 3))]

    def sequence(self, depth):
        parts = self.some(depth)
        return sequence(*(one for one, _ in parts)), lambda: "".join(text() for _, text in parts)

    def either(self, depth):
        parts = self.some(depth)
        return either(*(one for one, _ in parts)), lambda: self.random.choice(parts)[1]()

    def repeated(self, depth):
        kind, least, most = self.random.choice([("optional", 0, 1), ("star", 0, 3), ("plus", 1, 3)])
        content, text = self.format(depth - 1)
        return times(kind, content), lambda: "".join(text() for _ in range(self.random.randint(least, most)))

    def one_tag(self, depth, triggers=()):
        begin, end = self.random.choice(self.BEGINS), self.random.choice(self.ENDS)
        if triggers and not any(begin.startswith(trigger) for trigger in triggers):
            begin = self.random.choice(triggers) + self.random.choice(["", ">", "f"])
        content, text = self.format(depth - 1)
        return tag(begin, content, end), lambda: begin + text() + (end if isinstance(end, str) else self.random.choice(end))

    def tags(self, depth, triggers=()):
        tags = [self.one_tag(depth, triggers) for _ in range(self.random.randint(1, 3))]
        options = {"at_least_one": self.chance(40), "stop_after_first": self.chance(30)}

        def texts():
            count = self.random.randint(int(options["at_least_one"]), 1 if options["stop_after_first"] else 3)
            return [self.random.choice(tags)[1]() for _ in range(count)]

        return [one for one, _ in tags], options, texts

    def triggered_tags(self, depth):
        triggers = self.random.choice(self.TRIGGERS)
        tags, options, texts = self.tags(depth, triggers)
        used = [trigger for trigger in triggers if any(one["begin"].startswith(trigger) for one in tags)]
        excludes = self.random.choice([[], [], ["x"]])
        around = lambda: self.free(2) if self.chance(40) else ""
        return triggered(used, *tags, excludes=excludes, **options), lambda: "".join(around() + text for text in texts()) + around()

    def separated_tags(self, depth):
        separator = self.random.choice([",", "", "ab"])
        tags, options, texts = self.tags(depth)
        return separated(separator, *tags, **options), lambda: separator.join(texts())

    def damaged(self, text):
        place, piece = self.random.randint(0, len(text)), self.random.choice(self.PIECES)
        return self.random.choice([text[:place], text[:place] + piece + text[place:], text[:place] + text[place + 1:], text + piece])


def generated(random, count):
    for index in range(count):
        generator = Generator(random)
        format, text = generator.format(random.randint(1, 3))
        texts = {made for _ in range(6) for matching in [text()] for made in (matching, generator.damaged(matching))}
        yield f"generated {index}", format, sorted(texts)
