#!/usr/bin/env python3
# Checks what the compiler does not: layers and rooms, where libraries may be seen, registered tests and their names, sizes, file heads,
# banned calls, and that documents and comments name only what exists. ctest runs it on the tree (test `tidy`) and on samples that break one
# rule each (test `tidy_rules_fire`).
#
#   tests/tidy.py ROOT         prints file:line: what is wrong and what to do; exit code 1 if anything is
#   tests/tidy.py --self-test  proves that each rule fires, and that clean files pass
import ast
import collections
import fnmatch
import os
import re
import sys

LAYERS = ["schema", "kernels", "engine", "consumer", "ops"]
FOLDERS = LAYERS + ["tests", "docs", ".ci"]
# The rooms within a layer. A file may include its own room, those around it and, of others in its layer, those named here.
ROOMS = {
    "schema": [],
    "schema/store": [],
    "kernels": [],
    "kernels/cpu": ["kernels/cpu/simd"],
    "kernels/cpu/simd": [],
    "kernels/cuda": ["kernels/cuda/cublaslt", "kernels/cuda/emulation"],
    "kernels/cuda/cublaslt": [],
    "kernels/cuda/emulation": ["kernels/cuda/cublaslt"],
    "engine": ["engine/model", "engine/text"],
    "engine/model": [],
    "engine/text": [],
    "consumer": ["consumer/answer", "consumer/text"],
    "consumer/answer": [],
    "consumer/text": ["consumer/answer"],
    "consumer/batches": [],
    "consumer/file": [],
    "consumer/kafka": [],
    "consumer/kafka/batches": ["consumer/batches", "consumer/kafka/follow"],
    "consumer/kafka/calls": ["consumer/kafka/follow"],
    "consumer/kafka/follow": [],
    "ops": [],
    "ops/bench": [],
    "ops/bench/experiments": [],
    "ops/bench/speculation": [],
    "ops/bench/structure": [],
    "ops/client": [],
    "ops/gateway": ["ops/http"],
    "ops/http": [],
    "ops/run": [],
    "ops/serve": ["ops/gateway", "ops/http"],
    "ops/up": ["ops/gateway", "ops/http", "ops/serve", "ops/worker"],
    "ops/worker": ["ops/http"],
    "ops/program": ["ops/bench", "ops/bench/experiments", "ops/client", "ops/gateway", "ops/run", "ops/serve", "ops/up",
                    "ops/worker"],
}
FOLDER_FILES_MAX = 50
LEFT_OUT = {".git", ".deps", ".peers", ".cache", "build", "course", "target", "__pycache__"}
LINE_LENGTH_MAX = 140
FILE_LENGTH_MAX = 600
FUNCTION_LENGTH_MAX = 70
# Functions that are tables: a row per case and nothing else.
TABLE_FUNCTIONS = ("find_error_row",)
HEAD_WORDS_MIN = 5

CPP = (".h", ".cpp", ".cu", ".cuh")
CODE = CPP + (".rs", ".py", ".sh")
HASH_COMMENT = (".py", ".sh", ".toml", ".yaml", ".yml", ".cmake", "CMakeLists.txt", "Dockerfile")

# Which of our files may include what: (header, paths that may, what the others use instead).
CONFINED = [
    (r"nlohmann/", r"schema/json\.cpp", "schema/json.h"),
    (r"sqlite3", r"schema/store/\w+\.cpp", "schema/store/store.h"),
    (r"librdkafka/", r"consumer/kafka/\w+\.(cpp|h)|tests/(consumer/kafka|faults|simulation|support)/\w+\.(cpp|h)",
     "the seams in consumer/"),
    (r"spdlog/", r"(consumer|ops)/.*\.cpp", "a returned value or an exception; only consumer/ and ops/ log, from .cpp files"),
    (r"CLI/", r"ops/.*\.cpp|tests/ops/.*\.cpp", "ops/ for the command line, in .cpp files"),
    (r"toml\+\+/", r"ops/.*\.cpp", "ops/ for configuration, in .cpp files"),
    (r"prometheus/", r"ops/.*\.cpp", "ops/ for metrics, in .cpp files"),
    (r"boost/", r"ops/http/(\w+\.cpp|(client_stream|server_state)\.h)", "ops/http/server.h"),
    (r"openssl/", r"schema/secret\.cpp|ops/http/(tls|client_stream)\.cpp|tests/support/tls_client\.cpp",
     "schema/secret.h for hashes, ops/http/tls.h for TLS"),
    (r"cjose/", r"ops/gateway/jwt\.cpp", "ops/gateway/jwt.h"),
    (r"g(test|mock)/", r"tests/.*", "tests/"),
    (r"\w*intrin\.h", r"(tests/)?kernels/cpu/.*", "kernels/cpu, behind kernels::Backend"),
    (r"cuda\w*\.h", r"kernels/cuda/(device_ptx|runtime)\.h", "kernels/cuda/device.h in kernels, kernels/cuda/runtime.h on the host"),
    (r"cassert|assert\.h", r"(?!)", "schema/check.h"),
]

# (pattern, paths where it is allowed, what to write instead); matched in C++ with comments and strings blanked.
BANNED = [
    (r"\bstrtok(_r)?\s*\(", None, "std::string_view::find"),
    (r"\bv?s?n?printf\s*\(|\bstr(n?cpy|n?cat)\s*\(", None, "fmt::format or fmt::format_to_n"),
    (r"\bato[ifl]l?\s*\(|\bstrto(u?ll?|[dfi])\s*\(|\bsto(i|u?ll?|[dfi])\s*\(", None, "std::from_chars, and look at its error"),
    (r"(?<![\w.>])s?rand\s*\(", None, "a generator with a seed that is given (or printed, in a test)"),
    (r"\bstd::(cout|cerr|clog)\b", r"(ops|tests)/.*", "a returned value, or spdlog in consumer/"),
    (r"\bstd::endl\b", None, r"'\n', and std::flush where it is meant"),
    (r"\bassert\s*\(", None, 'CHECK(condition, "why"), which is on in every build'),
    (r"\b(std::)?((make_shared|shared_ptr)\b(?!<const )|weak_ptr\b)", None,
     "one owner: a value or std::unique_ptr; references borrow; only constants are shared"),
    (r"\bstd::w?regex\b", None, "a small parser, or the Rust layer: std::regex is slow and recurses on its input"),
    (r"\b(u|nano)?sleep\s*\(", r"tests/simulation/threads\.cpp", "a wait on a condition variable with a deadline"),
    (r"\bstd::system\b|(?<![\w.:>])system\s*\(", None, "nothing: the program starts no shells"),
    (r"\bgetenv\s*\(", r"(ops|tests)/.*", "a configuration value that ops/ passes down"),
    (r"\.detach\s*\(\s*\)", None, "std::jthread, or join()"),
    (r"\bvolatile\b", r"kernels/.*", "std::atomic"),
    (r"\busing\s+namespace\s+std\s*;", None, "std:: where it is used"),
    (r"\b(setjmp|longjmp|alloca|gets)\s*\(", None, "ordinary control flow and containers"),
    (r"(?m)^[ \t]*#[ \t]*define[ \t]+\w+(\(|[ \t]+\S)", r"schema/check\.h|kernels/cuda/emulation/device\.h",
     "constexpr, a template or a function; CHECK is the only macro"),
]

# How the head of a header says who uses it: a verb and "by", or the place in code that does.
USERS = re.compile(
    r"(?i)\b(\w+ed|made|read|run|held|written|kept|given|taken|driven|drawn) (only |alone |mostly )?(by|in|from|throughout)\b"
    r"|\bfor [`\w]|\bbase of\b|\bwhat [\w` ,]+ (shares?|needs?|takes?)\b|`[^`]+`|\w\.(h|cpp|cu|py)\b"
    r"|\b(schema|kernels|engine|consumer|ops|tests)/"
)
# Documents whose links, files and names are checked. CamelCase words in their text are tests, types or one of these.
DOCUMENTS = re.compile(r"(\w+|docs/.*|ops/example/\w+|tests/faults/\w+)\.md")
OTHER_NAMES = """
    AddOffsetsToTxn AddPartitionsToTxn CamelCase ConfigMap CorDA DoRA EndTxn GoogleTest JavaScript LoftQ PascalCase PiSSA PyTorch
    StatefulSet TxnOffsetCommit CamemBERT CodeGen DistilBERT StableLM StarCoder
""".split()
# Files that programs write, which documents may name.
WRITTEN = ["ops/gpu-report.*"]
# Files of others that comments may name.
OTHER_FILES = "cublasLt.h cublas_api.h library_types.h cuda_runtime_api.h llama.cpp tuners_utils.py model.py".split()
OTHER_FILES += ["convert_slow_tokenizer.py"]
# Ours, in tests/data, whose files are not read.
OTHER_FILES += ["make_vectors.py", "make_encoder_vectors.py", "make_jinja_vectors.py", "make_tag_vectors.py"]
TEST = re.compile(r"(?m)^[ \t]*(TYPED_TEST_P|TYPED_TEST|TEST_P|TEST_F|TEST)\s*\(\s*(\w+)\s*,\s*(\w+)")

UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
ONE_MACHINE = re.compile(r"(?<![\w.\-/}])/(?:root|home|work)/\w")


class Tree:
    """Files by path from the root, paths of others that are not read (data, pictures), ends of paths (`names`), and complaints."""

    def __init__(self, files, others=()):
        self.files = files
        self.others = set(others)
        self.names = {path[end:] for path in files for end in [0] + [match.end() for match in re.finditer("/", path)]}
        self.complaints = []

    def folders(self):
        return {path[: match.start()] for path in [*self.files, *self.others] for match in re.finditer("/", path)}

    def has(self, pattern):
        """Whether a file or folder has this path or name, in which * and ? may be."""
        ends = ("", "*/")
        return any(fnmatch.fnmatch(path, end + pattern) for path in [*self.files, *self.others, *self.folders()] for end in ends)

    def complain(self, path, line, rule, message):
        self.complaints.append((path, line, rule, message))


def kind(path, text):
    """The extension, or the name of a file that has none; scripts without one count as .sh or .py by their first line."""
    name = os.path.basename(path)
    if name in ("CMakeLists.txt", "Dockerfile"):
        return name
    extension = os.path.splitext(name)[1]
    if not extension and text.startswith("#!"):
        return ".py" if "python" in text.split("\n", 1)[0] else ".sh"
    return extension


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_of(text):
    """C++ with comments and literals replaced by blanks, so that lines keep their numbers."""
    literals = r'R"(\w*)\([\s\S]*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*[\s\S]*?\*/'
    return re.sub(literals, lambda m: blank(m) if m.group(0)[0] in "/'\"R" else m.group(0), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_text(tree, path, text, what):
    """Rules for every text file."""
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            tree.complain(path, number, "trailing_space", "spaces at the end of the line: remove them")
        if UNFINISHED.search(line):
            tree.complain(path, number, "unfinished", "a note about unfinished work: finish it, or open an issue")
        if ONE_MACHINE.search(line):
            tree.complain(path, number, "one_machine", "an absolute path of one machine: make it relative to the repository")
        if what in CODE and len(line) > LINE_LENGTH_MAX:
            tree.complain(path, number, "line_length", f"{len(line)} characters, {LINE_LENGTH_MAX} at most: break the line")
        if what in CPP + (".rs", ".py") and "\t" in line:
            tree.complain(path, number, "tab", "a tab: indent with spaces")
    if what in CODE:
        lines = text.count("\n")
        if lines > FILE_LENGTH_MAX:
            tree.complain(path, FILE_LENGTH_MAX, "file_length", f"{lines} lines, {FILE_LENGTH_MAX} at most: make it two files")
    if what in CPP + (".rs",) + HASH_COMMENT:
        check_head(tree, path, text, what)


def head_of(text, what):
    """The comment or docstring that a file begins with, as one line."""
    lines = [line for line in text.split("\n") if not line.startswith("#!")]
    begin = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if what in HASH_COMMENT and lines[begin].startswith('"""'):
        return " ".join(text.split('"""')[1].split())
    mark = re.compile(r"#\s?(?!\[)" if what in HASH_COMMENT else r"(?://[/!]?|/\*|\s\*(?!/))\s?")
    head = []
    for line in lines[begin:]:
        match = mark.match(line)
        if not match:
            break
        head.append(line[match.end():].removesuffix("*/").strip())
    return " ".join(head).strip()


def check_head(tree, path, text, what):
    head = head_of(text, what)
    if not head:
        tree.complain(path, 1, "first_comment", "begin the file with a comment: what it is for and who calls it")
    elif len(re.findall(r"[\w`'./-]*\w[\w`'./-]*", head)) < HEAD_WORDS_MIN or not re.search(r"[.:]", head):
        words = f"'{head}' is not a sentence of {HEAD_WORDS_MIN} words: say what the file is for and who calls it"
        tree.complain(path, 1, "file_head", words)
    elif path.endswith((".h", ".cuh")) and not USERS.search(head):
        tree.complain(path, 1, "file_head", "the head does not say who uses it: name the file, folder, class or command (\"Used by ...\")")


def functions_of(code):
    """(name, first line, last line) of each function that is in no other; of C++ or Rust with comments and literals blanked."""
    code = re.sub(r"(?m)^[ \t]*#.*(\\\n.*)*$", blank, code)
    functions, blocks, head = [], [], 0
    for mark in re.finditer(r"[{};]", code):
        at, inside = mark.start(), any(blocks)
        if mark.group() == "{":
            text = code[head:at]
            name = re.search(r"\bTEST\w*\s*\([^)]*\)|(?!__|alignas|decltype|noexcept|requires)\b[\w:~]+(?=\s*\()|operator\S+", text)
            opens = not inside and name and not re.search(r"(?<![=!<>])=\s*$|^\s*(inline )?(namespace|enum|extern)\b", text)
            blocks.append((name.group(), head + len(text) - len(text.lstrip())) if opens else None)
            if not inside and not opens:
                head = at + 1
        elif mark.group() == ";":
            head = head if inside else at + 1
        elif blocks:
            block = blocks.pop()
            if block:
                functions.append((block[0], line_of(code, block[1]), line_of(code, at)))
            # A member that is initialized with braces before the body of a constructor does not end its head.
            if not any(blocks) and not re.match(r"\s*[,{]", code[at + 1:]):
                head = at + 1
    return functions


def check_functions(tree, path, text, what):
    if what == ".py":
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        functions = [(node.name, node.lineno, node.end_lineno) for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    else:
        functions = functions_of(code_of(text))
    for name, begin, end in functions:
        if end - begin >= FUNCTION_LENGTH_MAX and name not in TABLE_FUNCTIONS:
            words = f"{name}: {end - begin + 1} lines, {FUNCTION_LENGTH_MAX} at most: make it two functions"
            tree.complain(path, begin, "function_length", words)


def check_cpp(tree, path, text):
    layer = path.split("/")[0]
    code = code_of(text)
    if path.endswith((".h", ".cuh")) and "#pragma once" not in text:
        tree.complain(path, 1, "pragma_once", "a header without #pragma once: add it after the first comment")
    for match in re.finditer(r'(?m)^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', text):
        number, quote, header = line_of(text, match.start()), match.group(1), match.group(2)
        target = header.split("/")[0]
        if quote == '"' and target not in LAYERS + ["tests"]:
            tree.complain(path, number, "include_path", f'"{header}": write includes of our own from the root, others in <>')
        if quote == '"' and layer in LAYERS and (target == "tests" or target in LAYERS and LAYERS.index(target) > LAYERS.index(layer)):
            line = " <- ".join(LAYERS)
            tree.complain(path, number, "layers", f"{layer}/ must not know {target}/ ({line}): move the piece left, or pass it in")
        room, other = os.path.dirname(path), os.path.dirname(header)
        known = [room, *ROOMS.get(room, [])]
        if quote == '"' and layer in LAYERS and target == layer and other not in known and not room.startswith(other + "/"):
            tree.complain(path, number, "rooms", f"{room}/ must not know {other}/: move the piece to a room around both, or pass it in")
        for pattern, allowed, instead in CONFINED:
            if re.match(pattern, header) and not re.fullmatch(allowed, path):
                tree.complain(path, number, "confined_include", f"<{header}> is not seen here: use {instead}")
    for pattern, allowed, instead in BANNED:
        for match in re.finditer(pattern, code):
            if not (allowed and re.fullmatch(allowed, path)):
                name = match.group(0).strip()
                tree.complain(path, line_of(code, match.start()), "banned_call", f"'{name}' is not used here: write {instead}")


def check_tests(tree):
    built = set(LAYERS)
    listed = re.search(r"set\(layers ([^)]*)\)", tree.files.get("tests/CMakeLists.txt", ""))
    if listed:
        built = set(listed.group(1).split())
    for path, text in tree.files.items():
        if not (path.startswith("tests/") and path.endswith(".cpp")):
            continue
        layer = path.split("/")[1]
        match = TEST.search(code_of(text))
        if match and not path.endswith("_test.cpp"):
            tree.complain(path, line_of(text, match.start()), "test_name", "tests live in files named *_test.cpp: rename it")
        if path.endswith("_test.cpp") and not match:
            tree.complain(path, 1, "test_name", "a *_test.cpp without a test: delete it, or move what it holds to tests/support")
        if path.endswith("_test.cpp") and layer not in built:
            tree.complain(path, 1, "test_registered", f"tests/{layer} is in no test program: move it to tests/LAYER")
        for off in re.finditer(r"//[ \t]*(TEST|TEST_F|TEST_P)\s*\(|\bDISABLED_\w+|\bGTEST_SKIP\(\)\s*;", text):
            number = line_of(text, off.start())
            tree.complain(path, number, "test_off", "a test switched off in silence: run it, delete it, or skip with a reason")
        for test in TEST.finditer(code_of(text)):
            name = f"{test.group(2)}.{test.group(3)}"
            if not re.fullmatch(r"[A-Z][A-Za-z0-9]*\.[A-Z][A-Za-z0-9]*", name):
                words = f"{name}: write the suite and the test in PascalCase, as Suite.SaysWhatHolds"
                tree.complain(path, line_of(text, test.start()), "test_style", words)
        if re.search(r"\bmt19937|\brandom_device\b", text) and "seed" not in text:
            tree.complain(path, 1, "test_seed", "random numbers without a printed seed: SCOPED_TRACE it")


def check_comments(tree, path, text, what):
    """Files that comments name: a file's name, or the end of its path."""
    for comment in re.finditer(r"//[^\n]*" if what in CPP + (".rs",) else r"(?m)(?:^|(?<=\s))#[^\n]*", text):
        for match in re.finditer(r"(?<![\w/.<>*{}$-])((?:[\w.-]+/)*[a-z][\w-]*\.(?:h|cpp|cu|cuh|py|rs))\b(?![\w(*])", comment.group()):
            if match.group(1) not in tree.names and os.path.basename(match.group(1)) not in OTHER_FILES:
                line = line_of(text, comment.start())
                tree.complain(path, line, "named_file", f"{match.group(1)} does not exist: name the file that is meant")


def anchors_of(text):
    """The anchors that GitHub gives to the headings of a document."""
    anchors, counts = set(), collections.Counter()
    for heading in re.findall(r"(?m)^#{1,6} +(.*?)[ #]*$", without_code(text)):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)|<[^>]*>", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        anchors.add(f"{anchor}-{counts[anchor]}" if counts[anchor] else anchor)
        counts[anchor] += 1
    return anchors | set(re.findall(r'(?:id|name)="([^"]+)"', text))


def without_code(text):
    """Markdown with fenced blocks blanked, so that lines keep their numbers."""
    return re.sub(r"(?ms)^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", blank, text)


def check_links(tree, path, text):
    body = re.sub(r"`[^`\n]*`", blank, without_code(text))
    links = r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|(?m:^\[[^\]]+\]:\s*(\S+))|(?:href|src)=\"([^\"]+)\""
    for match in re.finditer(links, body):
        target, line = next(filter(None, match.groups())), line_of(body, match.start())
        if re.match(r"[a-z+]+:", target):
            continue
        file, _, anchor = target.partition("#")
        full = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        if full not in tree.files and full not in tree.others and full not in tree.folders():
            tree.complain(path, line, "link", f"{target}: there is no {full}")
        elif anchor and full in tree.files and anchor not in anchors_of(tree.files[full]):
            tree.complain(path, line, "link", f"{target}: {full} has no heading with the anchor #{anchor}")


def check_names(tree, path, text, words):
    """Files in backticks, and names of tests in the text."""
    body = without_code(text)
    for match in re.finditer(r"`([^`\n]+)`", body):
        named = match.group(1).split()[0].rstrip("/")
        is_ours = named.split("/")[0] in LAYERS + ["tests", "docs"] and "/" in named
        if not is_ours and not re.fullmatch(r"[\w.*{},-]+\.(h|cpp|cu|cuh|cmake)", named) or re.search(r"[A-Z]{3}|[<>$:=()]", named):
            continue
        if not any(tree.has(one) for one in spread(named)) and not any(fnmatch.fnmatch(named, one) for one in WRITTEN):
            tree.complain(path, line_of(body, match.start()), "named_file", f"`{named}` does not exist: name the file that is meant")
    prose = re.sub(r"`[^`\n]*`|\]\([^)]*\)|<[^>\n]*>", blank, body)
    for match in re.finditer(r"(?<![\w./-])[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+(?![\w/-])", prose):
        if match.group() not in words and match.group() not in OTHER_NAMES:
            why = "no test or type: name the one that is meant, or add another's name to OTHER_NAMES in tests/tidy.py"
            tree.complain(path, line_of(prose, match.start()), "named_test", f"{match.group()} is {why}")


def spread(pattern):
    """a{b,c} as ab and ac."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if not match:
        return [pattern]
    return [one for part in match.group(1).split(",") for one in spread(pattern[:match.start()] + part + pattern[match.end():])]


def check_documents(tree):
    documents = [path for path in tree.files if DOCUMENTS.fullmatch(path)]
    words = set()
    for path, text in tree.files.items():
        if documents and not path.endswith((".md", ".json")):
            words |= set(re.findall(r"\w+", text))
    for path in documents:
        check_links(tree, path, tree.files[path])
        check_names(tree, path, tree.files[path], words)


def check_folders(tree):
    code_files = collections.Counter(os.path.dirname(path) for path in tree.files if path.endswith(CPP))
    for folder, count in code_files.items():
        if folder.split("/")[0] in LAYERS and folder not in ROOMS:
            tree.complain(folder, 1, "rooms", "a folder of code that ROOMS in tests/tidy.py does not list: say what it may include")
        if count > FOLDER_FILES_MAX:
            tree.complain(folder, 1, "folder_size", f"{count} code files, {FOLDER_FILES_MAX} at most: make it two folders")
    for path in tree.files:
        top = path.split("/")[0]
        if "/" in path and top not in FOLDERS:
            tree.complain(path, 1, "folders", f"{top}/ is not one of the folders of the project ({', '.join(FOLDERS)}): move it into one")


def check(tree):
    check_folders(tree)
    check_tests(tree)
    check_documents(tree)
    for path, text in tree.files.items():
        what = kind(path, text)
        if what in CODE + HASH_COMMENT + (".md", ".txt", ".jinja") or path.count("/") == 0:
            check_text(tree, path, text, what)
        if what in CPP:
            check_cpp(tree, path, text)
        if what in CPP + (".rs", ".py"):
            check_functions(tree, path, text, what)
        if what in CPP + (".rs", ".py", ".sh", ".cmake", "CMakeLists.txt") and path != "tests/tidy.py":
            check_comments(tree, path, text, what)
    return sorted(tree.complaints)


def read(root):
    files, others = {}, []
    for folder, names, leaves in os.walk(root):
        names[:] = sorted(n for n in names if n not in LEFT_OUT and not n.startswith("build-"))
        for leaf in leaves:
            full = os.path.join(folder, leaf)
            path = os.path.relpath(full, root)
            if leaf == ".git":
                continue
            if leaf == "LICENSE" or "/data/" in path or os.path.islink(full):
                others.append(path)
                continue
            with open(full, "rb") as file:
                content = file.read()
            if b"\0" not in content[:4096]:
                files[path] = content.decode("utf-8", errors="replace")
            else:
                others.append(path)
    return files, others


# (rule, path, text): each text breaks that rule and no other.
BROKEN = [
    ("layers", "schema/a.cpp", '// a\n#include "engine/engine.h"\n'),
    ("rooms", "consumer/a.cpp", '// a\n#include "consumer/kafka/source.h"\n'),
    ("rooms", "consumer/file/a.cpp", '// a\n#include "consumer/kafka/source.h"\n'),
    ("rooms", "ops/worker/a.cpp", '// a\n#include "ops/run/run.h"\n'),
    ("rooms", "ops/new_room/a.cpp", "// a\n"),
    ("layers", "ops/a.cpp", '// a\n#include "tests/support/fake.h"\n'),
    ("include_path", "schema/a.cpp", '// a\n#include "a.h"\n'),
    ("confined_include", "engine/a.cpp", "// a\n#include <nlohmann/json.hpp>\n"),
    ("confined_include", "consumer/seams.h", "// a\n#pragma once\n#include <librdkafka/rdkafka.h>\n"),
    ("confined_include", "consumer/a.h", "// a\n#pragma once\n#include <spdlog/spdlog.h>\n"),
    ("confined_include", "engine/a.cpp", "// a\n#include <immintrin.h>\n"),
    ("banned_call", "engine/a.cpp", "// a\nint x = atoi(s);\n"),
    ("banned_call", "engine/a.cpp", "// a\nint x = std::stoi(s);\n"),
    ("banned_call", "engine/a.cpp", "// a\nauto x = rand() % 2;\n"),
    ("banned_call", "engine/a.cpp", "// a\nchar* t = strtok(s, sep);\n"),
    ("banned_call", "engine/a.cpp", "// a\nsnprintf(b, 4, f);\n"),
    ("banned_call", "engine/a.cpp", "// a\nstd::cout << 1;\n"),
    ("banned_call", "ops/a.cpp", "// a\nstd::cout << std::endl;\n"),
    ("banned_call", "ops/a.cpp", "// a\nassert(x);\n"),
    ("banned_call", "ops/a.cpp", "// a\nstd::shared_ptr<int> p;\n"),
    ("banned_call", "ops/a.cpp", "// a\nstd::regex r;\n"),
    ("banned_call", "ops/a.cpp", "// a\nusleep(3);\n"),
    ("banned_call", "ops/a.cpp", "// a\nsystem(s);\n"),
    ("banned_call", "engine/a.cpp", "// a\nauto* v = getenv(n);\n"),
    ("banned_call", "engine/a.cpp", "// a\nt.detach();\n"),
    ("banned_call", "engine/a.cpp", "// a\nvolatile int x;\n"),
    ("banned_call", "engine/a.cpp", "// a\nusing namespace std;\n"),
    ("banned_call", "engine/a.cpp", "// a\nauto* p = alloca(3);\n"),
    ("banned_call", "engine/a.cpp", "// a\n#define MAX(a, b) a\n"),
    ("banned_call", "engine/a.cpp", "// a\n#define SIZE 3\n"),
    ("pragma_once", "schema/a.h", "// a\nint x;\n"),
    ("first_comment", "schema/a.cpp", "int x;\n"),
    ("file_head", "schema/a.cpp", "// Rows in, rows out.\nint x;\n"),
    ("file_head", "schema/a.h", "// Rows that go in and rows that come out.\n#pragma once\n"),
    ("function_length", "schema/a.cpp", "// a\nint f(int x) {\n" + "    x++;\n" * FUNCTION_LENGTH_MAX + "}\n"),
    ("function_length", "engine/a.cpp", "// a\nB::B(int x)\n    : x_{x}, y_{x} {\n" + "    x++;\n" * FUNCTION_LENGTH_MAX + "}\n"),
    ("function_length", "tests/schema/a_test.cpp", "// a\nTEST(A, B) {\n" + "    x++;\n" * FUNCTION_LENGTH_MAX + "}\n"),
    ("function_length", "ops/gpu/a.py", "# a\ndef f(x):\n" + "    x += 1\n" * FUNCTION_LENGTH_MAX),
    ("named_file", "schema/a.cpp", "// a\n// See schema/none.h.\n"),
    ("named_file", "tests/isa_check", "#!/usr/bin/env bash\n# a\n# See none.cpp.\n"),
    ("named_file", "README.md", "What `kernels/none.h` has.\n"),
    ("named_file", "docs/jobs.md", "What `none.cpp` has.\n"),
    ("named_test", "ARCHITECTURE.md", "| nothing is lost | LosesNothingButIsGone |\n"),
    ("link", "README.md", "[jobs](docs/none.md)\n"),
    ("link", "docs/jobs.md", "# Job lines\n[above](#job-line)\n"),
    ("link", "README.md", '<img src="docs/none.png">\n'),
    ("file_head", "ops/gpu/a.py", '"""Rows."""\n'),
    ("first_comment", "ops/run", "#!/usr/bin/env bash\necho\n"),
    ("first_comment", "engine/text/src/lib.rs", "fn f() {}\n"),
    ("line_length", "schema/a.cpp", "// a\nint " + "x" * LINE_LENGTH_MAX + ";\n"),
    ("file_length", "schema/a.cpp", "// a\n" + "int x;\n" * FILE_LENGTH_MAX),
    ("trailing_space", "schema/a.cpp", "// a\nint x; \n"),
    ("tab", "schema/a.cpp", "// a\n\tint x;\n"),
    ("unfinished", "schema/a.cpp", "// a\n// " + "TO" + "DO\n"),
    ("one_machine", "ops/run", "#!/usr/bin/env bash\n# a\ncd /home" + "/me\n"),
    ("folders", "src/a.cpp", "// a\n"),
    ("test_name", "tests/schema/a.cpp", "// a\nTEST(A, B) {}\n"),
    ("test_name", "tests/schema/a_test.cpp", "// a\nint x;\n"),
    ("test_registered", "tests/other/a_test.cpp", "// a\nTEST(A, B) {}\n"),
    ("test_style", "tests/schema/a_test.cpp", "// a\nTEST(A, is_refused) {}\n"),
    ("test_style", "tests/schema/a_test.cpp", "// a\nTEST_F(A, IsRefused_Slow) {}\n"),
    ("test_off", "tests/schema/a_test.cpp", "// a\nTEST(A, B) { f(&DISABLED_B); }\n"),
    ("test_off", "tests/schema/a_test.cpp", "// a\nTEST(A, B) {}\n// TEST(A, C) {}\n"),
    ("test_off", "tests/schema/a_test.cpp", "// a\nTEST(A, B) { GTEST_SKIP(); }\n"),
    ("test_seed", "tests/schema/a_test.cpp", "// a\nTEST(A, B) { std::mt19937_64 r; }\n"),
]

# Each of these looks like a breach and is not one.
CLEAN = {
    "schema/json.cpp": '// a\n#include <nlohmann/json.hpp>\n#include "schema/json.h"\n',
    "schema/check.h": "// a\n#pragma once\n#define CHECK(condition, why) f(condition)\n",
    "schema/a.cpp": '// Never rand() or atoi(): see assert(\nauto s = "std::cout << 1"; auto r = R"(sprintf(x)")"; int x = 1\'0;\n',
    "engine/a.cpp": "// a\n#define XXH_INLINE_ALL\n#include <xxhash.h>\nint operand(int x); int y = operand(1); int z = a.rand();\n",
    "consumer/kafka/source.h": '// a\n#pragma once\n#include <librdkafka/rdkafka.h>\n#include "engine/engine.h"\n',
    "consumer/a.cpp": "// a\n#include <spdlog/spdlog.h>\nstatic_assert(true);\nstd::this_thread::sleep_for(x);\n",
    "ops/a.cpp": "// a\nstd::cout << 1;\n",
    "ops/run": "#!/usr/bin/env bash\n# a\nmktemp -d .deps/setup.XXXXXX\n",
    "tests/CMakeLists.txt": "# a\nset(layers schema ops)\n",
    "tests/schema/a_test.cpp": '// a\n#include <gtest/gtest.h>\nTEST(A, B) { std::mt19937_64 r(seed); GTEST_SKIP() << "no broker"; }\n',
    "tests/ops/deep/a_test.cpp": '// a\n#include "tests/support/fake.h"\nTEST(A, B) {}\n',
    "README.md": "# A: `b_c`, d\n" + "x" * 300 + "\n"
    "[d](#a-b_c-d) [jobs](docs/jobs.md#lines-1) `schema/*.h` `schema/{a,json}.cpp` IsRead, SaysB\n",
    "docs/jobs.md": "# Lines\n```\n# none\n```\n# Lines\n"
    "[a](../README.md#a-b_c-d) [web](https://a.b) ![c](../tests/data/c.svg) `NAME.cpp` `a.jsonl`\n",
    "tests/ops/named_test.cpp": "// a\nTEST(IsRead, SaysB) {" + "}\nTEST(IsRead, SaysC) {\n    x();\n" * FUNCTION_LENGTH_MAX + "}\n",
    "kernels/cuda/a.cu": "// a\n#if defined(F)\n#endif\nconst int table[] = {\n" + "    1,\n" * FUNCTION_LENGTH_MAX + "};\n"
    "class A {\n" + "    int f() {}\n" * 99 + "};\n",
}
# Pictures and data, which are not read.
CLEAN_OTHERS = ["tests/data/c.svg"]


def sample(text):
    """The text of a sample with a whole sentence as its head where it has "a"."""
    return re.sub(r"(?m)^(//|#) a$", r"\1 A sample for the rules of `tidy`, in one line.", text, count=1)


def self_test():
    clean = {path: sample(text) for path, text in CLEAN.items()}
    failures = [f"clean {path}: {rule}: {message}" for path, _, rule, message in check(Tree(clean, CLEAN_OTHERS))]
    crowd = {f"schema/a{number}.h": sample("// a\n#pragma once\n") for number in range(FOLDER_FILES_MAX + 1)}
    if {complaint[2] for complaint in check(Tree(crowd))} != {"folder_size"}:
        failures.append("folder_size does not fire")
    for rule, path, text in BROKEN:
        fired = {complaint[2] for complaint in check(Tree({path: sample(text)}))}
        if fired != {rule}:
            failures.append(f"{path} {text!r}: expected {rule}, got {sorted(fired) or 'nothing'}")
    with open(__file__, encoding="utf-8") as file:
        rules = set(re.findall(r'complain\([^"\n]*"(\w+)"', file.read()))
    failures += [f"no sample breaks {rule}" for rule in sorted(rules - {rule for rule, _, _ in BROKEN} - {"folder_size"})]
    for pattern, _, _ in BANNED:
        if not any(re.search(pattern, code_of(text)) for rule, _, text in BROKEN if rule == "banned_call"):
            failures.append(f"no sample breaks the ban on {pattern}")
    for failure in failures:
        print(failure)
    print(f"tidy: {len(rules)} rules, {len(BROKEN)} broken samples, {len(CLEAN)} clean ones, {len(failures)} failures")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 1 or not os.path.isdir(arguments[0]):
        print("usage: tests/tidy.py ROOT | --self-test", file=sys.stderr)
        return 2
    tree = Tree(*read(arguments[0]))
    complaints = check(tree)
    for path, line, rule, message in complaints:
        print(f"{path}:{line}: {rule}: {message}")
    print(f"tidy: {len(tree.files)} files, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
