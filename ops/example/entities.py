"""The names in a description, as the example's entities adapter learns them; used by train_encoder.py and make_jobs.py.

Nobody labelled these texts by hand. A word is SOFTWARE if the archive's metadata has it as the name of the package itself, of its source,
or of a package that it is related to; a word is LANGUAGE if it is in a list of programming languages. So the labels of SOFTWARE come from
outside the text and leave out what the metadata does not have: other software that a description mentions counts as no name.
Python's standard library only.
"""

import re
from collections import Counter

from common import user_text

LANGUAGES = [
    "Ada", "C", "C++", "C#", "Clojure", "Common Lisp", "Emacs Lisp", "Erlang", "Fortran", "Haskell", "Java", "JavaScript", "Javascript",
    "Lisp", "Lua", "OCaml", "Pascal", "Perl", "PHP", "Prolog", "Python", "Ruby", "Rust", "Scala", "Scheme", "Smalltalk", "Tcl",
]  # fmt: skip
# Words that name a language only where the archive's section says so: Go is also a game, R a letter.
LANGUAGES_OF_SECTIONS = {"golang": "Go", "gnu-r": "R"}

# A word of the text: an identifier, with the punctuation that names have inside.
WORD = re.compile(r"[A-Za-z0-9](?:[\w+]|::|[.-](?=\w))*")
AFFIXES = re.compile(
    r"^(?:lib|python3?-|ruby-|node-|php-|golang-(?:github-)?|r-cran-|r-bioc-|elpa-|haskell-|ocaml-|rust-|gir1\.2-)"
    r"|(?:-perl|-java|-clojure|-ocaml|-el|-dev|-doc|-data|-common|-utils|-tools|-bin|-cil|-sharp|\d[\d.]*)$"
)
LENGTH_MIN = 3
# A word that at least so many descriptions of the train split write without capitals is a word of the language, whatever is named so.
COMMON_MIN = 40


def common_words(packages: list[dict]) -> set[str]:
    """Words that are not names, although packages have such names: "time", "file"."""
    counts: Counter = Counter()
    for package in packages:
        counts.update({word for word in WORD.findall(user_text(package)) if word.islower()})
    return {word for word, count in counts.items() if count >= COMMON_MIN}


def letters_of(name: str) -> str:
    """What two spellings of a name share: "Foo::Bar" and "foo-bar"."""
    return re.sub(r"[^a-z0-9+]", "", name.lower())


def names_of(package: dict) -> set[str]:
    """The letters of each name that the metadata has, as it is and without the archive's affixes."""
    names = set()
    for name in [package["package"], package["source"], *package["related"]]:
        names.add(letters_of(name))
        while (shorter := AFFIXES.sub("", name)) != name:
            name = shorter
            names.add(letters_of(name))
    return {name for name in names if len(name) >= LENGTH_MIN}


def entity_spans(package: dict, common: set[str]) -> list[tuple[int, int, str]]:
    """(start, end, group) in characters of user_text(package), in the order of the text, without overlaps."""
    text = user_text(package)
    languages = [*LANGUAGES, *filter(None, [LANGUAGES_OF_SECTIONS.get(package["section"])])]
    pattern = "|".join(re.escape(language) for language in sorted(languages, key=len, reverse=True))
    spans = [(m.start(), m.end(), "LANGUAGE") for m in re.finditer(rf"(?<![\w.+#:/-])(?:{pattern})(?![\w+#:]|[.-]\w)", text)]
    taken = {position for start, end, _ in spans for position in range(start, end)}
    names = names_of(package)
    for match in WORD.finditer(text):
        if match.start() not in taken and match[0].lower() not in common and letters_of(match[0]) in names:
            spans.append((match.start(), match.end(), "SOFTWARE"))
    return sorted(spans)
