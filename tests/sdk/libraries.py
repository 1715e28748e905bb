# What the checks of OpenAI's libraries share. Ends the process with 77, as skipped, where the Python library is not installed.
import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "ops" / "example"
PATIENCE = 120  # seconds, for what takes one
MODULES = ROOT / ".deps" / "tools" / "node_modules"
sys.path[:0] = map(str, ROOT.glob(".deps/tools/lib/python3*/site-packages"))  # of ops/setup --tests, before older ones
try:
    import openai
except ImportError:
    print("skipped: the package openai is not installed (ops/setup --tests)")
    sys.exit(77)


class Synchronous:
    """A synchronous client, or what it returned, with the methods of an asynchronous one: the same checks run with both."""

    def __init__(self, inner) -> None:
        self._inner = inner

    def __getattr__(self, name: str):
        found = getattr(self._inner, name)
        if name in ("chat", "completions", "embeddings", "models", "files", "batches", "responses"):
            return Synchronous(found)
        return (lambda *arguments, **named: Answer(lambda: found(*arguments, **named))) if callable(found) else found

    async def __aiter__(self):
        for each in self._inner:
            yield each


class Answer:
    """What a method of an asynchronous client returns, of a synchronous call that is made when it is wanted."""

    def __init__(self, call) -> None:
        self._call = call

    def __await__(self):
        value = self._call()
        return Synchronous(value) if isinstance(value, openai.Stream) else value
        yield

    async def __aiter__(self):
        for each in self._call():
            yield each

    async def __aenter__(self) -> Synchronous:
        self._manager = self._call()
        return Synchronous(self._manager.__enter__())

    async def __aexit__(self, *error) -> None:
        self._manager.__exit__(*error)


@contextlib.asynccontextmanager
async def clients(url: str, key: str):
    """A synchronous one and an asynchronous one, with the same methods."""
    named = {"base_url": url, "api_key": key, "max_retries": 0}
    with openai.OpenAI(**named) as synchronous:
        async with openai.AsyncOpenAI(**named) as asynchronous:
            yield [Synchronous(synchronous), asynchronous]


async def error_of(kind: type[openai.OpenAIError], call, *arguments, **named):
    try:
        await call(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} of {arguments} {named}")


def node() -> str | None:
    """The program, if its library is installed."""
    return shutil.which("node") if (MODULES / "openai").exists() else None


def run_node(script: str, *arguments: str, timeout: int) -> None:
    """Runs a script of this folder with Node's library: SCRIPT MODULES ARGUMENTS. Nothing happens without it: end() says so."""
    if program := node():
        subprocess.run([program, ROOT / "tests" / "sdk" / script, MODULES, *arguments], check=True, timeout=timeout)


def end() -> None:
    if node() is None:
        print("skipped: the Node library is not installed (ops/setup --tests); Python's was tested")
        sys.exit(77)
    print("all well")
