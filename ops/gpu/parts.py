"""The parts of ops/gpu-check. Each runs programs and returns facts from their output, or raises Failure. goals.py judges the figures."""

import functools
import glob
import importlib.metadata
import json
import re
import shutil
import sys
import time
from pathlib import Path

from memory import adapter_bytes
from ncu import METRICS, launches_of, slowest, steps_of, unfinished_step
from pack import program
from process import PACK, ROOT, Failure, PartTime, last_json, run
from progress import Part
from report import NOT_TUNED
from work import Work

# The table that `matmul` measures and later parts use, and the one for the shapes of tests.
TABLE = PACK / "matmul-table"
TEST_TABLE = PACK / "matmul-table-of-tests"
SHARDS = 4  # of a sanitizer's tests
TUNING_MARGIN_SECONDS = 30
PROFILE_SECONDS_MAX = 300
PROFILE_MARGIN_SECONDS = 30  # for ncu to print
PROFILED_LAUNCHES_MAX = 2000  # more than the start and three steps make, too few to reach the later ones that measure the GPU
GOLDENS = "*Golden*"
SAMPLED = ("--temperature", 0.8, "--top-p", 0.95, "--repetition-penalty", 1.1, "--frequency-penalty", 0.2)
INVARIANCE = "*/Invariance.Holds*:*/Invariance.Forks*:Lending.*"


def tested(command: list, environment: dict | None = None) -> tuple[dict, str]:
    """Runs a test program. Every skipped test counts as not passed."""
    output, code = run(command, environment)
    passed, skipped, failed = (len(re.findall(rf"^\[ +{word} +\] \S+ \(\d", output, re.M)) for word in ("OK", "SKIPPED", "FAILED"))
    if code != 0 or failed or skipped or not passed:
        why = "\n".join([line for line in output.splitlines() if not re.match(r"\[ +(RUN|OK) ", line)][-40:])
        raise Failure(f"{passed} tests passed, {failed} failed, {skipped} were skipped, exit code {code}:\n{why}")
    return {"tests passed": passed}, output


def tests(command: list, environment: dict | None = None) -> dict:
    return tested(command, environment)[0]


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not there"


@functools.cache
def card() -> dict[str, str]:
    """What nvidia-smi reports about the first GPU."""
    fields = "name,driver_version,memory.total,compute_cap,clocks.max.sm,clocks.max.mem"
    output, code = run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"])
    if code != 0 or not output.strip():
        raise Failure(output.strip() or "nvidia-smi names no GPU")
    return dict(zip(fields.split(","), [field.strip() for field in output.splitlines()[0].split(",")], strict=True))


def card_bytes() -> int | None:
    """The size of its memory; None: not reported, and each part then fails with the reason."""
    try:
        mebibytes = re.fullmatch(r"(\d+) MiB", card()["memory.total"])
    except Failure:
        return None
    return int(mebibytes.group(1)) * 2**20 if mebibytes else None


@functools.cache
def chip(lorry: Path) -> dict:
    """The GPU, its driver and its measured rates."""
    return last_json([lorry, "bench", "machine", "--device", "cuda", "--json"])


def stamp(work: Work) -> dict:
    """What a part's figures were measured with. Parts with different stamps are of different runs."""
    if work.device != "cuda":
        return {"commit": "of a rehearsal"}
    facts = {"commit": program("commit").read_text(encoding="utf-8")}
    try:
        facts["GPU"], facts["driver"] = card()["name"], card()["driver_version"]
        facts["cudart"], facts["cuBLASLt"] = chip(work.lorry)["cudart"], chip(work.lorry)["cublaslt"] or "not there"
    except Failure:
        facts["GPU"] = facts.get("GPU", "none")  # each part fails with the reason
    return facts


def device(work: Work) -> dict:
    facts = dict(card())
    machine = chip(work.lorry)
    rates = machine["rates"] or {}
    facts |= {"processors": machine["processors"], "Python": sys.version.split()[0],
              "fp8's rate": "measured" if rates.get("fp8_dot_operations_per_second") else "assumed to be twice bf16's"}  # fmt: skip
    facts |= {name: f"{value:.3g}" for name, value in rates.items() if value}
    return facts | {package: version_of(package) for package in ("torch", "transformers", "peft")}


def kernels(_: Work) -> dict:
    return tests([program("test_gpu"), "--gtest_filter=Op/*/cuda_*-*/cuda_library_*"])


def goldens(_: Work) -> dict:
    return tests([program("test_gpu"), f"--gtest_filter={GOLDENS}"], {"LORRY_TEST_DEVICE": "cuda"})


def invariance(_: Work) -> dict:
    return tests([program("test_gpu"), f"--gtest_filter={INVARIANCE}"], {"LORRY_TEST_DEVICE": "cuda"})


def has_fp8(work: Work) -> bool:
    """Whether cuBLASLt multiplies the shape on this machine."""
    return bool((chip(work.lorry)["rates"] or {}).get("fp8_dot_operations_per_second"))


def tune(work: Work, table: Path, seconds_max: int, more: tuple) -> dict:
    """Tunes within the time of a part, less a margin to end in. Shapes that it does not reach keep Lorry's own kernel."""
    seconds = max(1, min(seconds_max, round(PartTime.left() - TUNING_MARGIN_SECONDS)))
    return last_json([work.lorry, "bench", "tune", "--device", "cuda", "--table", table, "--seconds-max", seconds, *more, "--json"])


def cublaslt(work: Work) -> dict:
    """Tests of kernels, goldens and invariance with cuBLASLt for every shape that it can multiply, even without a gain. Tests of kernels
    make their own rows; goldens use a table."""
    checkpoints = ",".join(map(str, sorted((ROOT / "tests" / "data" / "models" / "checkpoints").iterdir())))
    TEST_TABLE.unlink(missing_ok=True)
    facts = {}
    for more in ((), ("--quantize", "fp8")) if has_fp8(work) else ((),):
        tuning = tune(work, TEST_TABLE, 120, ("--model", checkpoints, "--slower-too", *more))
        served = sum(bool(shape["buckets"]) for shape in tuning["matmuls"])
        facts[f"goldens' shapes that it multiplies, {more[-1] if more else 'bf16'}"] = f"{served} of {len(tuning['matmuls'])}"
        if served == 0:
            raise Failure(f"cuBLASLt has no algorithm with the same bits for all rows: {facts}")
    passed, output = tested([program("test_gpu"), "--gtest_filter=Op/Agreement.*/cuda_library_*:Op/RowInvariance.*/cuda_library_*"])
    facts["kernel tests passed"] = passed["tests passed"]
    for inputs in ("bfloat16", "fp8_rows"):
        served, missed = (set(re.findall(rf"^cuBLASLt {verb} (\d+ x \d+) {inputs}$", output, re.M))
                          for verb in ("multiplies", "does not multiply"))  # fmt: skip
        facts[f"their shapes that it multiplies, {inputs}"] = f"{len(served)} of {len(served | missed)}"
        if not served and (inputs == "bfloat16" or has_fp8(work)):
            raise Failure(f"cuBLASLt multiplied nothing: {facts}")
    environment = {"LORRY_TEST_DEVICE": "cuda", "LORRY_TEST_MATMUL_TABLE": str(TEST_TABLE)}
    facts["golden and invariance tests passed"] = tests([program("test_gpu"), f"--gtest_filter={GOLDENS}:{INVARIANCE}"],
                                                        environment)["tests passed"]  # fmt: skip
    return facts


def tool_of_the_toolkit(name: str) -> str | None:
    places = ["/usr/local/cuda/bin", *sorted(glob.glob("/opt/nvidia/nsight-compute/*"), reverse=True)]
    return shutil.which(name) or shutil.which(name, path=":".join(places))


def sanitized(tool: str, shard: int) -> dict:
    # Leaves out statistics of draws, which take most of the time and say nothing about memory, and cuBLASLt, which is not Lorry's code.
    sanitizer = tool_of_the_toolkit("compute-sanitizer")
    if sanitizer is None:
        raise Failure("compute-sanitizer is neither in PATH nor in /usr/local/cuda/bin: install the CUDA toolkit")
    return tests([sanitizer, "--tool", tool, "--target-processes", "all", "--error-exitcode", "9", program("test_gpu"),
                  "--gtest_filter=Op/*/cuda_*-*/cuda_library_*:*SampleTest.Draws*:*SampleTest.Top*:*SampleTest.Penalties*"],
                 {"GTEST_TOTAL_SHARDS": str(SHARDS), "GTEST_SHARD_INDEX": str(shard)})  # fmt: skip


def sanitizers(tool: str, seconds: int) -> dict[str, Part]:
    """Each runs a share of the tests, so that a share that takes too long does not lose the results of the others."""
    return {f"{tool}_{shard + 1}": Part(lambda _, shard=shard: sanitized(tool, shard), seconds) for shard in range(SHARDS)}


def answers_of_example(work: Work, device: str, dtype: str) -> tuple[dict, int, float]:
    """The texts of the jobs that succeeded, how many jobs there were, and the seconds of the run."""
    out = PACK / f"results-{device}-{dtype}.jsonl"
    for left in PACK.glob(f"{out.stem}.*"):
        left.unlink()
    began = time.monotonic()
    output, code = run([work.lorry, "run", "ops/example/jobs/section.jsonl", "-o", out, "--model", "ops/example/model",
                        "--adapters", "ops/example/adapters", "--device", device, "--dtype", dtype])  # fmt: skip
    if code != 0:
        raise Failure(f"--device {device} --dtype {dtype}: exit code {code}:\n" + output[-3000:])
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    texts = {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in lines
             if line["response"] and line["response"]["status_code"] == 200}  # fmt: skip
    return texts, len(lines), time.monotonic() - began


def example(work: Work) -> dict:
    """The example's held-out jobs on both devices: all must succeed, and nearly all greedy answers must be the same."""
    facts = {}
    for dtype in ("float32", "bfloat16"):
        on_cpu, jobs, cpu_seconds = answers_of_example(work, "cpu", dtype)
        on_gpu, _, gpu_seconds = answers_of_example(work, "cuda", dtype)
        same = sum(on_gpu.get(key) == text for key, text in on_cpu.items())
        facts[dtype] = f"{same} of {jobs} answers the same; {gpu_seconds:.1f} s on the GPU, {cpu_seconds:.1f} s on the CPU"
        if len(on_gpu) != jobs or same < 0.99 * jobs:
            raise Failure(f"the devices do not agree in {dtype}: {facts[dtype]}; on the GPU {len(on_gpu)} succeeded")
    return facts


def loss(work: Work) -> dict:
    """How fp8 changes the example's answers, compared with the CPU's formats."""
    rows = last_json([work.lorry, "bench", "loss", "--model", "ops/example/model", "--adapters", "ops/example/adapters",
                      "--jobs", "ops/example/jobs/heldout.jsonl", "--json"])["rows"]  # fmt: skip
    facts = {row["weights"]: f"perplexity {row['perplexity']:.4f}, {row['answers_same']} of {row['answers']} answers as in float32"
             for row in rows}  # fmt: skip
    if "fp8" not in facts:
        raise Failure("no GPU was found to measure fp8 on")
    return facts


def matmul(work: Work, more: tuple = (), models: str = "") -> dict:
    """cuBLASLt's algorithms against Lorry's own kernel, and the rows for cublaslt/matmul_table.cpp, which later parts use."""
    tuning = tune(work, TABLE, 300, ("--random-weights", models or work.shape, *more))
    facts = {"device": tuning["device"], "cuBLASLt": tuning["library"], "copies": f"{tuning['copied_bytes_per_second'] / 1e9:.0f} GB/s",
             "multiplies": f"{tuning['operations_per_second'] / 1e12:.0f} TFLOP/s"}  # fmt: skip
    for shape in tuning["matmuls"]:
        sizes = [f"{bucket['rows']} rows {bucket['bytes_per_second'] / 1e9:.0f} GB/s, "
                 f"{bucket['operations_per_second'] / 1e12:.1f} TFLOP/s, {100 * bucket['share_of_limit']:.0f} % of the limit, "
                 f"{bucket['own_seconds'] / bucket['seconds']:.2f} times own"
                 for bucket in shape["buckets"] if bucket["rows"] in (16, 64, 256, 2048)]  # fmt: skip
        name, finding = shape["finding"].split(": ", 1)
        facts[name] = "; ".join([finding, *sizes])
    left = [f"{shape['out_features']} x {shape['in_features']}" for shape in tuning["matmuls"]
            if not shape["complete"] and not shape["buckets"]]  # fmt: skip
    if left:
        facts[NOT_TUNED] = left
    if not any(shape["buckets"] for shape in tuning["matmuls"]):
        nothing_ran = len(left) == len(tuning["matmuls"])
        why = "there was time for no shape" if nothing_ran else "cuBLASLt has no algorithm with the same bits for all rows"
        raise Failure(f"{why}:\n" + json.dumps(facts, indent=1))
    return facts


def matmul_fp8(work: Work) -> dict:
    return matmul(work, ("--quantize", "fp8"))


def matmul_others(work: Work) -> dict:
    return matmul(work, models="llama-3.2-1b,qwen2.5-0.5b,smollm2-135m")


def table_rows() -> list[str]:
    """The rows of the table that parts use; none if there is no file."""
    return TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []


def write_table(rows: list[str]) -> None:
    """Writes the table of an earlier run on a machine that does not have it."""
    if rows and not TABLE.exists() and TABLE.parent.is_dir():
        TABLE.write_text("\n".join(rows) + "\n", encoding="utf-8")


def table(work: Work) -> tuple:
    """The flags that name the table of `matmul`, if there is one."""
    return ("--matmul-table", TABLE) if work.device == "cuda" and TABLE.exists() else ()


def with_limits(command: list) -> dict:
    result = last_json([*command, "--json"])
    if not result.get("machine"):
        raise Failure("the GPU's limits were not measured: there is no cuBLASLt (CUDA's, or pip's nvidia-cublas)")
    return result


def throughput(work: Work, requests: int, batch: int, prompt: int, output: int, more: tuple = ()) -> dict:
    result = with_limits([
        work.lorry, "bench", "throughput", "--random-weights", work.shape, "--device", work.device, "--requests", requests, "--max-batch",
        batch, "--input-tokens", prompt, "--output-tokens", output, "--step-tokens", max(work.step_tokens, batch), "--repeat", 2,
        *table(work), *more,
    ])  # fmt: skip
    if result["decode"]["rows"] != batch:
        raise Failure(f"no step decoded {batch} sequences, at most {result['decode']['rows']} did")
    return result


def narrow_cache(work: Work) -> tuple:
    return ("--kv-dtype", "fp8" if work.device == "cuda" else "int8")


def attention(work: Work, more: tuple = ()) -> dict:
    return with_limits([work.lorry, "bench", "attention", "--random-weights", work.shape, "--device", work.device, "--batch",
                        ",".join(map(str, work.batches)), "--context", work.context, "--prompt", ",".join(map(str, work.prompts)),
                        "--step-tokens", max(work.prompts), *more])  # fmt: skip


def attention_fp8_kv(work: Work) -> dict:
    return attention(work, narrow_cache(work))


def decode(work: Work, more: tuple = ()) -> dict:
    batches = [work.batch(work.context + work.decoded, batch) for batch in work.batches]
    return {f"batch {batch}": throughput(work, batch, batch, work.context, work.decoded, more) for batch in batches}


def decode_fp8_kv(work: Work) -> dict:
    return decode(work, narrow_cache(work))


def decode_plain(work: Work) -> dict:
    """The same without graphs, to show what they save."""
    return decode(work, ("--graph-memory", "0"))


def decode_sampled(work: Work) -> dict:
    """The same with tokens drawn with penalties instead of greedily, to show the cost, in the largest batch, which draws the most."""
    batch = work.batch(work.context + work.decoded)
    return {f"batch {batch}": throughput(work, batch, batch, work.context, work.decoded, SAMPLED)}


def offline_work(work: Work, prompt: int, output: int, batches: int, more: tuple = ()) -> dict:
    """Batches as large as the card permits, one after the other."""
    batch = work.batch(prompt + output)
    return throughput(work, batches * batch, batch, prompt, output, more)


def offline(work: Work, more: tuple = ()) -> dict:
    return {f"{prompt}/{output}": offline_work(work, prompt, output, batches, more) for prompt, output, batches in work.offline}


def offline_fp8(work: Work, more: tuple = ()) -> dict:
    return offline(work, ("--quantize", "fp8", *more) if work.device == "cuda" else more)


def offline_fp8_kv(work: Work) -> dict:
    """With long contexts a step reads more cache than weights, so narrow weights alone gain less than the goal."""
    return offline_fp8(work, narrow_cache(work))


def adapter_flags(ranks: tuple[int, ...]) -> tuple:
    # Requests use them in turn, so that only a few different adapters are written.
    period = next(count for count in range(1, len(ranks) + 1) if ranks == (ranks[:count] * len(ranks))[: len(ranks)])
    return ("--random-adapters", len(ranks), "--ranks", ",".join(map(str, ranks[:period])), "--adapter-memory",
            f"{-(-adapter_bytes(ranks) // 2**20)}MiB")  # fmt: skip


def adapters(work: Work) -> dict:
    """The time that adapters add to a decode step, alternating with the same requests for the base."""
    cases = {"few": work.few, "mixed": work.mixed, "padded": work.padded()}
    batch = work.adapters_batch()
    facts = {}
    for name, ranks in cases.items():
        more = (*adapter_flags(ranks), "--no-base", "--against-base")
        facts[name] = throughput(work, batch, batch, work.context, work.decoded, more) | {"ranks": ranks}
    return facts


def adapters_loop(work: Work) -> dict:
    """A decode step of one adapter's share of the batch. A loop over all adapters takes this time once per adapter."""
    facts = {}
    for name, ranks in {"few": work.few, "mixed": work.mixed}.items():
        rows = work.adapters_batch() // len(ranks)
        mean = round(sum(ranks) / len(ranks))
        more = (*adapter_flags((mean,)), "--no-base")
        facts[name] = throughput(work, rows, rows, work.context, work.decoded, more) | {"turns": len(ranks)}
    return facts


def loading(work: Work) -> dict:
    return last_json([work.lorry, "bench", "loading", "--random-weights", work.shape, "--device", work.device, "--requests",
                      work.batches[0], "--input-tokens", work.context // 4, *adapter_flags((max(work.mixed),) * len(work.few)),
                      *table(work), "--json"])  # fmt: skip


def beside(work: Work, ways: dict[str, str], more: tuple = ()) -> dict:
    """Lorry and torch with the first of the offline works, in one run."""
    prompt, output, batches = work.offline[0]
    facts = {"Lorry": offline_work(work, prompt, output, batches, more)}
    for name, way in ways.items():
        facts[name] = last_json([sys.executable, ROOT / "ops" / "gpu" / "baselines.py", way, "--batch", facts["Lorry"]["decode"]["rows"],
                                 "--prompt", prompt, "--output", output, *work.baseline])  # fmt: skip
    return facts


def baselines(work: Work) -> dict:
    """Two loops: serving needs a paged cache, but a static one is faster when all sequences are equally long."""
    return beside(work, {"transformers": "generate", "a paged torch loop": "paged", "a static torch loop": "static"})


def baselines_adapters(work: Work) -> dict:
    return beside(work, {"transformers with peft": "peft"}, (*adapter_flags(work.few), "--no-base"))


def profile(work: Work) -> dict:
    """The slowest kernels of a prefill step and of a decode step, in a few layers, as Nsight Compute measures them. It runs each kernel
    several times; when time runs out, the measurements so far count."""
    ncu = tool_of_the_toolkit("ncu")
    if ncu is None:
        return {"ncu": "is not installed: nothing was profiled"}
    batch, context = work.batches[0], work.context
    seconds = max(1, min(PROFILE_SECONDS_MAX, round(PartTime.left() - PROFILE_MARGIN_SECONDS)))
    began = time.monotonic()
    # `timeout` ends the program, not ncu, which prints afterwards. ncu stays in its process group, so that it ends with the part.
    output, code = run([ncu, "--target-processes", "all", "--clock-control", "none", "--launch-count", PROFILED_LAUNCHES_MAX, "--csv",
                        "--print-units", "base", "--metrics", ",".join(METRICS), "timeout", "--foreground", "--kill-after", 5, seconds,
                        work.lorry, "bench", "throughput", "--random-weights", work.shape, "--layers", work.profiled_layers, "--device",
                        work.device, "--requests", batch, "--max-batch", batch, "--input-tokens", context, "--output-tokens", 3,
                        "--step-tokens", batch * (context + 1), "--repeat", 1, "--graph-memory", 0, *table(work)])  # fmt: skip
    if "ERR_NVGPUCTRPERM" in output:
        return {"ncu": "is not permitted to read the GPU's counters here (ERR_NVGPUCTRPERM): nothing was profiled"}
    launches = launches_of(output)
    steps = steps_of(launches)
    was_ended = code != 0 and time.monotonic() - began >= seconds
    kinds = {"a step that was cut short": unfinished_step(launches) if was_ended else [], "prefill": steps[0] if steps else [],
             "decode": steps[-1] if len(steps) > 1 else []}  # fmt: skip
    if not any(kinds.values()) or not was_ended and (code != 0 or len(steps) < 2):
        raise Failure(f"exit code {code}, {len(steps)} steps were profiled:\n{output[-3000:]}")
    facts = {f"{what}: {kernel}": figures for what, step in kinds.items() for kernel, figures in slowest(step).items()}
    return facts | ({"ended": f"after {seconds} s, with {len(launches)} launches profiled"} if was_ended else {})


# The most important parts come first, as there may not be time for all; `matmul` comes before the parts that use its table. The seconds are
# estimates until a part has run.
PARTS = {
    "device": Part(device, 20), "kernels": Part(kernels, 60), "goldens": Part(goldens, 60), "invariance": Part(invariance, 90),
    "matmul": Part(matmul, 120), "decode": Part(decode, 120), "attention": Part(attention, 40), "offline": Part(offline, 200),
    "cublaslt": Part(cublaslt, 300), "adapters": Part(adapters, 270), "matmul_fp8": Part(matmul_fp8, 100),
    "offline_fp8": Part(offline_fp8, 150), "loading": Part(loading, 60), **sanitizers("memcheck", 120), "profile": Part(profile, 150),
    "adapters_loop": Part(adapters_loop, 80), "offline_fp8_kv": Part(offline_fp8_kv, 150), "decode_plain": Part(decode_plain, 110),
    "decode_sampled": Part(decode_sampled, 70), "decode_fp8_kv": Part(decode_fp8_kv, 110), "attention_fp8_kv": Part(attention_fp8_kv, 40),
    "example": Part(example, 60), "baselines": Part(baselines, 180), "baselines_adapters": Part(baselines_adapters, 150),
    "loss": Part(loss, 120), "matmul_others": Part(matmul_others, 200), **sanitizers("racecheck", 200),
}  # fmt: skip
