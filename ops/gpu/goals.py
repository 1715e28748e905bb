"""Compares what the parts of ops/gpu-check measured with floors and goals, as rows of the report's tables. Pure; called by report.py."""

from dataclasses import dataclass, replace

from floors import LLAMA_8B, Limits, adapter_seconds, decode_seconds, output_tokens_per_second


@dataclass(frozen=True)
class Row:
    what: str
    measured: str
    floor: str = ""
    share: str = ""
    goal: str = ""
    reached: bool | None = None  # None: there is no goal


def waits(what: str, part: str, goal: str) -> Row:
    """The row of a goal that compares with a part that has no result."""
    return Row(what, f"not measured: {part} has not passed", goal=goal)


def limits_of(result: dict) -> Limits:
    machine = result["machine"]
    # In a rehearsal the processor may lack dot products of bfloat16.
    multiply = machine["bfloat16_dot_operations_per_second"] or machine["float32_operations_per_second"]
    return Limits(machine["copy_bytes_per_second"], multiply, machine.get("fp8_dot_operations_per_second"))


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def step_of(decode: dict) -> float:
    return decode["step"]["p50_seconds"]


def shape_rows(facts: dict) -> list[Row]:
    limits = limits_of(facts)
    rows = []
    for shape in facts["shapes"]:
        if shape["rows"] == 1:
            rate = shape["bytes_per_second"]
            share = rate / limits.copy
            rows.append(Row(shape["name"], f"{rate / 1e9:.0f} GB/s", f"{limits.copy / 1e9:.0f} GB/s", percent(share), ">= 80 %",
                            share >= 0.8))  # fmt: skip
        else:
            rate = shape["operations_per_second"]
            share = rate / limits.multiply
            rows.append(Row(shape["name"], f"{rate / 1e12:.0f} TFLOP/s", f"{limits.multiply / 1e12:.0f} TFLOP/s", percent(share),
                            ">= 300 TFLOP/s", rate >= 300e12))  # fmt: skip
    return rows


def attention_rows(parts: dict) -> list[Row]:
    return shape_rows(parts["attention"])


def attention_fp8_kv_rows(parts: dict) -> list[Row]:
    """Half the bytes per token, so the same share of the limit is twice the tokens."""
    return shape_rows(parts["attention_fp8_kv"])


def step_row(what: str, result: dict, fp8_kv: bool = False) -> Row:
    decode = result["decode"]
    step = step_of(decode)
    floor = decode_seconds(LLAMA_8B, limits_of(result), decode["rows"], decode["context_tokens"], fp8_kv=fp8_kv)
    return Row(f"step of {what} at {decode['context_tokens']:.0f} tokens", milliseconds(step), milliseconds(floor), percent(floor / step),
               ">= 80 %", floor / step >= 0.8)  # fmt: skip


def decode_fp8_kv_rows(parts: dict) -> list[Row]:
    rows = []
    for name, result in parts["decode_fp8_kv"].items():
        rows.append(step_row(f"{name}, fp8 cache", result, fp8_kv=True))
        what, goal = f"fp8 cache against bf16, {name}", "faster"
        wide = parts.get("decode", {}).get(name)
        if wide:
            ratio = step_of(wide["decode"]) / step_of(result["decode"])
            rows.append(Row(what, f"{ratio:.2f} times", "", "", goal, ratio > 1.0))
        else:
            rows.append(waits(what, "decode", goal))
    return rows


def decode_rows(parts: dict) -> list[Row]:
    rows = []
    for name, result in parts["decode"].items():
        step = step_of(result["decode"])
        rows.append(step_row(name, result))
        gap = result["idle_seconds"] / result["steps"]
        rows.append(Row(f"GPU without work between steps, {name}", milliseconds(gap), "", f"{percent(gap / step)} of a step", "< 3 %",
                        gap / step < 0.03))  # fmt: skip
        graphs = result["graph_steps"]
        rows.append(Row(f"steps that were graphs, {name}", str(graphs), "", f"of {result['steps']}", "some", graphs > 0))
    return rows


def step_rows_beside_decode(parts: dict, part: str, way: str, usual: str) -> list[Row]:
    """Steps that are slower on purpose and have no goal, compared with those of part decode, which are described by `usual`."""
    rows = []
    for name, result in parts[part].items():
        row = replace(step_row(f"{name} {way}", result), goal="", reached=None)
        of_decode = parts.get("decode", {}).get(name)
        if of_decode:
            row = replace(row, measured=f"{row.measured}, {milliseconds(step_of(of_decode['decode']))} {usual}")
        rows.append(row)
    return rows


def decode_plain_rows(parts: dict) -> list[Row]:
    return step_rows_beside_decode(parts, "decode_plain", "without graphs", "with them")


def decode_sampled_rows(parts: dict) -> list[Row]:
    return step_rows_beside_decode(parts, "decode_sampled", "drawn with penalties", "greedy")


def output_floor(result: dict, fp8: bool = False, fp8_kv: bool = False) -> float:
    return output_tokens_per_second(LLAMA_8B, limits_of(result), result["input_tokens"][0], result["output_tokens"][0],
                                    result["decode"]["rows"], fp8, fp8_kv)  # fmt: skip


def output_row(what: str, result: dict, floor: float, note: str = "") -> Row:
    rate = result["tokens_out_per_second"]
    return Row(f"{what}, batch {result['decode']['rows']}", f"{rate:.0f} tokens/s", f"{floor:.0f} tokens/s{note}", percent(rate / floor))


def offline_rows(parts: dict) -> list[Row]:
    rows = []
    for name, result in parts["offline"].items():
        floor = output_floor(result)
        reached = result["tokens_out_per_second"] >= 0.8 * floor
        rows.append(replace(output_row(f"bf16 {name}", result, floor), goal=">= 80 %", reached=reached))
    return rows


def narrow_rows(parts: dict, part: str, way: str, fp8_kv: bool) -> list[Row]:
    """Rows of fp8 weights. The goal is a ratio to bf16, shown with that of the floors, as data that keeps its width limits the gain."""
    rows, ratios = [], []
    for name, result in parts[part].items():
        floor = output_floor(result, fp8=True, fp8_kv=fp8_kv)
        assumed = " (fp8 assumed twice as fast as bf16)" if limits_of(result).multiply_fp8 is None else ""
        rows.append(output_row(f"{way} {name}", result, floor, assumed))
        what, goal = f"{way} against bf16, {name}", ">= 1.6 times"
        wide = parts.get("offline", {}).get(name)
        if wide:
            ratio = result["tokens_out_per_second"] / wide["tokens_out_per_second"]
            most = floor / output_floor(wide)
            ratios.append(Row(what, f"{ratio:.2f} times", f"{most:.2f} times", percent(ratio / most), goal, ratio >= 1.6))
        else:
            ratios.append(waits(what, "offline", goal))
    return rows + ratios


def offline_fp8_rows(parts: dict) -> list[Row]:
    return narrow_rows(parts, "offline_fp8", "fp8", fp8_kv=False)


def offline_fp8_kv_rows(parts: dict) -> list[Row]:
    return narrow_rows(parts, "offline_fp8_kv", "fp8 with an fp8 cache", fp8_kv=True)


def ranks_text(ranks: list[int]) -> str:
    low, high = min(ranks), max(ranks)
    return f"{len(ranks)} of rank {low}" if low == high else f"{len(ranks)} of ranks {low} to {high}"


def added_seconds(result: dict) -> float:
    """The time that the adapters add to a decode step."""
    return step_of(result["decode"]) - step_of(result["adapters"]["base_decode"])


def adapters_rows(parts: dict) -> list[Row]:
    facts = parts["adapters"]
    rows = []
    for name, result in facts.items():
        ranks = result["ranks"]
        base, added = step_of(result["adapters"]["base_decode"]), added_seconds(result)
        floor = adapter_seconds(LLAMA_8B, limits_of(result), sum(ranks), result["decode"]["rows"], sum(ranks) / len(ranks))
        # A few small adapters cost launches rather than bytes. Padded ones are only for comparison.
        goal, reached = {"few": ("<= 5 % of the step", added <= 0.05 * base), "mixed": ("<= 1.5 times the floor", added <= 1.5 * floor),
                         "padded": ("", None)}[name]  # fmt: skip
        what, share = f"{ranks_text(ranks)}, batch {result['decode']['rows']}", percent(added / base)
        rows.append(Row(f"{what}: added to a step of {milliseconds(base)}", f"{milliseconds(added)}, {share}", milliseconds(floor),
                        f"{added / floor:.2f} times", goal, reached))  # fmt: skip
        if name == "mixed":
            # The same 1.5 times the floor, stated for a batch of 256: a smaller batch has a shorter step with the same adapters.
            reached = added <= 0.27 * base if result["decode"]["rows"] >= 256 else None
            rows.append(Row(f"{what}: of the step", share, percent(floor / base), "", "<= 27 % in a batch of 256", reached))
    saved = added_seconds(facts["padded"]) - added_seconds(facts["mixed"])
    rows.append(Row("true ranks instead of padded ones save", milliseconds(saved), "", "", "> 0", saved > 0))
    return rows


def adapters_loop_rows(parts: dict) -> list[Row]:
    rows = []
    for name, result in parts["adapters_loop"].items():
        turns = result["turns"]
        looped = turns * step_of(result["decode"])
        what, goal = f"the same {turns} in one batch", "faster"
        if "adapters" in parts:
            batch = parts["adapters"][name]
            decode, ranks = batch["decode"], batch["ranks"]
            limits, together = limits_of(batch), step_of(decode)
            floor = decode_seconds(LLAMA_8B, limits, decode["rows"], decode["context_tokens"]) + adapter_seconds(
                LLAMA_8B, limits, sum(ranks), decode["rows"], sum(ranks) / len(ranks))  # fmt: skip
            rows += [Row(f"{turns} adapters in a loop: a step of all", milliseconds(looped), milliseconds(floor), percent(floor / looped)),
                     Row(what, f"{milliseconds(together)}, {looped / together:.1f} times as fast", milliseconds(floor),
                         percent(floor / together), goal, together < looped)]  # fmt: skip
        else:
            rows += [Row(f"{turns} adapters in a loop: a step of all", milliseconds(looped)), waits(what, "adapters", goal)]
    return rows


def loading_rows(parts: dict) -> list[Row]:
    facts = parts["loading"]
    delay = facts["loading_delay_seconds"]
    steps = f"{facts['loading_steps']} steps of {milliseconds(facts['step_p50_seconds'])}"
    return [
        Row(f"longest delay while an adapter is loaded, in {steps}", milliseconds(delay), "", "", "<= 2 ms", delay <= 2e-3),
        Row("longest delay without loading", milliseconds(facts["quiet_delay_seconds"])),
        Row("an adapter is there after", milliseconds(facts["load_seconds"])),
    ]


def beside_rows(facts: dict) -> list[Row]:
    ours = facts["Lorry"]
    what = f"{ours['input_tokens'][0]}/{ours['output_tokens'][0]}, batch {ours['decode']['rows']}"
    rate = ours["tokens_out_per_second"]
    floor = output_floor(ours)
    rows = [Row(f"Lorry, {what}", f"{rate:.0f} tokens/s, a step {milliseconds(step_of(ours['decode']))}", f"{floor:.0f} tokens/s",
                percent(rate / floor))]  # fmt: skip
    for name, result in facts.items():
        if "missing" in result:
            rows.append(Row(name, f"not there: {result['missing']}"))
        elif name != "Lorry":
            theirs = result["tokens_per_second"]
            rows.append(Row(f"{name} ({result['engine']})", f"{theirs:.0f} tokens/s, a step {milliseconds(result['step_seconds'])}",
                            f"{floor:.0f} tokens/s", f"{percent(theirs / floor)}; Lorry is {rate / theirs:.2f} times as fast"))  # fmt: skip
    return rows


def baselines_rows(parts: dict) -> list[Row]:
    return beside_rows(parts["baselines"])


def baselines_adapters_rows(parts: dict) -> list[Row]:
    facts, without = parts["baselines_adapters"], parts.get("baselines", {})
    rows = beside_rows(facts)
    for name, base, rate in (("Lorry", "Lorry", "tokens_out_per_second"), ("transformers with peft", "transformers", "tokens_per_second")):
        if rate in facts[name] and rate in without.get(base, {}):
            rows.append(Row(f"{name}: of its rate without adapters", percent(facts[name][rate] / without[base][rate])))
    return rows


# The rows of each part. The functions get the measurements of all parts.
ROWS = {
    "attention": attention_rows,
    "attention_fp8_kv": attention_fp8_kv_rows,
    "decode": decode_rows,
    "decode_plain": decode_plain_rows,
    "decode_sampled": decode_sampled_rows,
    "decode_fp8_kv": decode_fp8_kv_rows,
    "offline": offline_rows,
    "offline_fp8": offline_fp8_rows,
    "offline_fp8_kv": offline_fp8_kv_rows,
    "adapters": adapters_rows,
    "adapters_loop": adapters_loop_rows,
    "loading": loading_rows,
    "baselines": baselines_rows,
    "baselines_adapters": baselines_adapters_rows,
}
