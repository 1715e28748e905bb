"""Converts a checkpoint to GGUF with llama.cpp's own converter. Run by ops/bench-peers in the environment of transformers:

make_gguf.py LLAMA_CPP_FOLDER CHECKPOINT bf16|q8_0 OUT
"""

import runpy
import sys

llama_cpp, checkpoint, kind, out = sys.argv[1:]
sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]

from conversion.base import TextModel  # noqa: E402

# The converter recognizes a pre-tokenizer by a hash of its output, and knows no hash for a made-up vocabulary.
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
sys.argv = ["convert_hf_to_gguf.py", checkpoint, "--outtype", kind, "--outfile", out]
runpy.run_path(f"{llama_cpp}/convert_hf_to_gguf.py", run_name="__main__")
