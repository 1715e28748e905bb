"""Writes everything in this folder: tiny random checkpoints of generators, encoders and classifiers, LoRA adapters, what transformers,
peft and sentence-transformers compute with them, and inputs that a loader has to refuse. Run by hand when a family or a variant is
added; tests only read what it wrote.

    PYTHONHASHSEED=0 python make_goldens.py [NAME ...]      # names of checkpoints or adapters; none: everything

Needs torch, transformers, peft, safetensors and sentence-transformers (the versions used stand in README.md). The same versions on the same kind of
CPU write the same bytes.
"""

import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch  # noqa: E402
import transformers  # noqa: E402

import golden_adapters  # noqa: E402
import golden_checkpoints  # noqa: E402
import golden_encoder_adapters  # noqa: E402
import golden_encoders  # noqa: E402
import golden_families  # noqa: E402
import golden_pooling  # noqa: E402
import golden_quantized  # noqa: E402
import golden_refusals  # noqa: E402

FOLDER = Path(__file__).resolve().parent


def main(names):
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"  # peft keeps module names in sets, so the order of its lists follows the hash seed
        os.execv(sys.executable, [sys.executable, *sys.argv])
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    golden_checkpoints.write_all(FOLDER / "checkpoints", names)
    golden_adapters.write_all(FOLDER / "adapters", FOLDER / "checkpoints", names)
    golden_families.write_all(FOLDER, names)
    golden_quantized.write_all(FOLDER, names)
    golden_encoders.write_all(FOLDER / "encoders", names)
    golden_encoder_adapters.write_all(FOLDER / "encoder_adapters", FOLDER, names)
    if not names or golden_pooling.CHECKPOINT in names:
        golden_pooling.write(FOLDER / "encoders")
    if not names:
        golden_refusals.write_broken_adapters(FOLDER / "refused_adapters", FOLDER / "checkpoints")
        golden_refusals.write_configs(FOLDER / "refused_configs")
    total = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    print(f"total {total / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
