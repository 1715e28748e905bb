# What the checks of OpenAI's libraries share. Ends the process with 77, as skipped, where the Python library is not installed.
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "ops" / "example"
sys.path[:0] = map(str, ROOT.glob(".deps/tools/lib/python3*/site-packages"))  # of ops/setup --tests, before older ones
try:
    import openai
except ImportError:
    print("skipped: the package openai is not installed (ops/setup --tests)")
    sys.exit(77)


def error_of(kind: type[openai.OpenAIError], call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} of {arguments} {named}")


def run_node(script: str, url: str, *arguments: str, timeout: int) -> None:
    """Runs a script of this folder with Node's library: SCRIPT URL MODULES ARGUMENTS."""
    node = shutil.which("node")
    modules = ROOT / ".deps" / "tools" / "node_modules"
    if node is None or not (modules / "openai").exists():
        print("skipped: the Node library is not installed (ops/setup --tests)")
        return
    subprocess.run([node, ROOT / "tests" / "sdk" / script, url, modules, *arguments], check=True, timeout=timeout)
