"""Rounds a checkpoint to llama.cpp's Q4_0 with llama.cpp's own quantizer. Run by ops/bench-peers in the environment of llama.cpp:

make_q4_0.py OUT CONVERT... runs CONVERT... bf16 FILE, which writes the GGUF that is rounded.
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import llama_cpp


def main() -> None:
    out, *convert = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        wide = str(Path(folder) / "bf16.gguf")
        subprocess.run([*convert, "bf16", wide], check=True)
        parameters = llama_cpp.llama_model_quantize_default_params()
        parameters.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
        status = llama_cpp.llama_model_quantize(wide.encode(), out.encode(), ctypes.byref(parameters))
        if status != 0:
            sys.exit(f"llama_model_quantize: {status}")


main()
