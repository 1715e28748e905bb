#!/usr/bin/env python3
"""Measures the example's adapters and their baselines on the held-out packages: the figures of the model card.

Last step of the example (README.md); reads WORK/packages.jsonl, the base model and the adapters, answers every held-out
package with transformers and PEFT (greedy, float32) and prints one line per task and baseline; of the encoder's adapters
only the baseline, as score_table.py scores what Lorry answers. With --out it writes the
answers as OpenAI Batch output lines too, so that score.py can compare them with Lorry's.
"""

import argparse
import json
import math
import time
from collections import Counter
from pathlib import Path

from common import TASKS, chat_prompt, first_sentence, gold_answer, load_packages, prepare_cpu, pretraining_text, user_text
from entities import WORD, common_words, entity_spans
from score import FIGURE, figure_of
from score_table import figure_text, ner_score

prepare_cpu()

import torch  # noqa: E402 (after prepare_cpu, as OpenMP reads its settings once)
from peft import PeftModel  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

TOKENS_MAX = {"section": 8, "synopsis": 32, "tags": 48, "language": 8}


def pairs_of(task: str, packages: list[dict]) -> list[tuple[dict, str]]:
    return [(package, answer) for package in packages if (answer := gold_answer(task, package)) is not None]


def mean_figure(task: str, answers: list[str], golds: list[str]) -> str:
    """The mean with its standard error, as the card prints it."""
    values = [figure_of(task, answer, gold) for answer, gold in zip(answers, golds)]
    mean = sum(values) / len(values)
    error = math.sqrt(sum((value - mean) ** 2 for value in values)) / len(values)
    return f"{FIGURE[task]} {mean:.3f} ± {error:.3f} ({len(values)} packages)"


def bag_of_words(task: str, train: list[tuple[dict, str]], heldout: list[tuple[dict, str]]) -> list[str]:
    """Logistic regression over tf-idf of words and word pairs, of the same cut texts as the adapter sees."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True)
    features = vectorizer.fit_transform([user_text(package) for package, _ in train])
    model = LogisticRegression(C=10, max_iter=60, tol=1e-3)
    model.fit(features, [answer for _, answer in train])
    return list(model.predict(vectorizer.transform([user_text(package) for package, _ in heldout])))


def baselines(tasks: list[str], splits: dict) -> None:
    for task in tasks:
        train, heldout = pairs_of(task, splits["train"]), pairs_of(task, splits["heldout"])
        golds = [gold for _, gold in heldout]
        if task != "synopsis":
            majority = Counter(answer for _, answer in train).most_common(1)[0][0]
            print(f"{task}: majority ({majority}): {mean_figure(task, [majority] * len(golds), golds)}", flush=True)
            print(f"{task}: bag of words: {mean_figure(task, bag_of_words(task, train, heldout), golds)}", flush=True)
        else:
            answers = [first_sentence(user_text(package)) for package, _ in heldout]
            print(f"{task}: first sentence: {mean_figure(task, answers, golds)}", flush=True)


def names_baseline(splits: dict) -> None:
    """Each word has the group that it mostly has in the train split, whatever is around it; words that are not there have none."""
    common = common_words(splits["train"])
    counts: dict[str, Counter] = {}
    for package in splits["train"]:
        groups = {(start, end): group for start, end, group in entity_spans(package, common)}
        for match in WORD.finditer(user_text(package)):
            counts.setdefault(match[0], Counter())[groups.get(match.span(), "")] += 1
    usual = {word: count.most_common(1)[0][0] for word, count in counts.items()}
    rows = []
    for package in splits["heldout"]:
        found = [(m.start(), m.end(), usual.get(m[0], "")) for m in WORD.finditer(user_text(package))]
        entities = [{"start": start, "end": end, "entity_group": group} for start, end, group in found if group]
        rows.append({"entities": json.dumps(entities), "names": json.dumps(entity_spans(package, common))})
    print(f"entities: words of the train split: {figure_text(ner_score(rows))}", flush=True)


@torch.no_grad()
def answer_all(model, tokenizer, task: str, packages: list[dict], batch: int) -> list[str]:
    """Greedy answers to the chat prompts, batched by length (left padding)."""
    order = sorted(range(len(packages)), key=lambda i: len(packages[i]["description"]))
    answers = [""] * len(packages)
    for begin in range(0, len(order), batch):
        rows = order[begin : begin + batch]
        prompts = [chat_prompt(user_text(packages[row])) for row in rows]
        inputs = tokenizer(prompts, add_special_tokens=False, padding=True, return_tensors="pt")
        out = model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=TOKENS_MAX[task], do_sample=False
        )
        for row, ids in zip(rows, out[:, inputs["input_ids"].size(1) :]):
            answers[row] = tokenizer.decode(ids, skip_special_tokens=True)
    return answers


@torch.no_grad()
def perplexity(model, tokenizer, packages: list[dict]) -> tuple[float, float]:
    """(per token, bits per byte) of held-out entries in the form Package, Section, Synopsis, Description."""

    class ControlFileOrder:
        def random(self):
            return 0.2

    loss = tokens = size = 0
    for package in packages:
        text = pretraining_text(package, ControlFileOrder())
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt", truncation=True, max_length=1024)["input_ids"]
        count = ids.size(1) - 1
        loss += model(input_ids=ids, labels=ids).loss.item() * count
        tokens += count
        size += len(text.encode()) - len("<|bos|><|eos|>")
    return math.exp(loss / tokens), loss / math.log(2) / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = Path(__file__).parent
    parser.add_argument("--work", type=Path, default=Path("build/example"), help="folder of packages.jsonl (default: %(default)s)")
    parser.add_argument("--model", type=Path, default=here / "model")
    parser.add_argument("--adapters", type=Path, default=here / "adapters")
    parser.add_argument("--out", type=Path, help="also write the answers here, as OpenAI Batch output lines")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=TASKS)
    parser.add_argument("--no-baselines", action="store_true")
    parser.add_argument("--perplexity", type=int, default=200, metavar="N",
                        help="of the base on N held-out packages (default: %(default)s)")
    parser.add_argument("--limit", type=int, help="only so many held-out packages per task")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    splits = load_packages(arguments.work)
    if not arguments.no_baselines:
        baselines(arguments.tasks, splits)
        names_baseline(splits)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, padding_side="left")
    lines = []
    for task in arguments.tasks:
        base = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
        model = PeftModel.from_pretrained(base, arguments.adapters / task).eval()
        heldout = pairs_of(task, splits["heldout"])[: arguments.limit]
        start = time.monotonic()
        answers = answer_all(model, tokenizer, task, [package for package, _ in heldout], arguments.batch)
        print(f"{task}: adapter: {mean_figure(task, answers, [gold for _, gold in heldout])} {time.monotonic() - start:.0f} s", flush=True)
        for (package, gold), answer in list(zip(heldout, answers))[:5]:
            print(f"    {package['package']}: {answer!r} (gold {gold!r})", flush=True)
        for (package, _), answer in zip(heldout, answers):
            body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": answer}}]}
            prefix = "all-section" if task == "section" else task
            lines.append({"custom_id": f"{prefix}-{package['package']}", "response": {"status_code": 200, "body": body}, "error": None})
    if arguments.out:
        arguments.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if arguments.perplexity:
        base = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
        per_token, bits = perplexity(base, tokenizer, splits["heldout"][: arguments.perplexity])
        print(f"base: perplexity {per_token:.1f} per token, {bits:.2f} bits per byte")


if __name__ == "__main__":
    main()
