#!/usr/bin/env python3
# Runs the example's encoder over its table of packages with the commands of ops/demo, and checks the scores and what the demo prints of
# them. A wrong head gives scores near the baselines, and a tokenizer that loses capitals finds fewer names. ctest runs it as
# `example_encoder`.
#
#   tests/example_check.py PROGRAM     PROGRAM is lorry
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "ops" / "example"
# A little below what ops/example/README.md says, because processors add up in different orders.
FLOORS = {"classify": 0.65, "embed": 0.35, "ner": 0.6}
TASKS = {"classify": ["--adapter", "section"], "embed": [], "ner": ["--adapter", "entities", "--aggregation", "first"]}


def checked(command: list) -> str:
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"failed: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def main() -> int:
    program = sys.argv[1]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        tables = [Path(folder) / f"{task}.csv" for task in TASKS]
        for table, (task, flags) in zip(tables, TASKS.items()):
            model = ["--model", EXAMPLE / "encoder/model", "--adapters", EXAMPLE / "encoder/adapters"]
            columns = ["--id", "package", "--text", "description", "--truncate"]
            checked([program, "run", EXAMPLE / "jobs/packages.csv.gz", "-o", table, *model, *columns, "--task", task, *flags])
        for line in checked([sys.executable, EXAMPLE / "score_table.py", "--json", *tables]).splitlines():
            entry = json.loads(line)
            print(f"{entry['task']}: {entry['figure_name']} {entry['figure']:.3f} of {entry['rows']}, at least {FLOORS[entry['task']]}")
            if entry["figure"] < FLOORS[entry["task"]] or entry["failed"] != 0 or entry["rows"] != 2000:
                print(f"failed: {line}")
                failed += 1
        report = checked([sys.executable, ROOT / "ops/demo_tables.py", *tables])
        for part in ("description → archive section", "by chance", "F1", "The names in the first descriptions:"):
            if part not in report:
                print(f"failed: ops/demo_tables.py does not print '{part}':\n{report}")
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
