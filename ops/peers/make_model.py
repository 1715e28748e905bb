"""Writes the checkpoint that all engines run: random weights of a known shape in Hugging Face's format, and LoRA adapters for it.

Run by ops/bench-peers in the environment of transformers: make_model.py SHAPE FOLDER writes FOLDER/hf and FOLDER/adapters.
"""

import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from works import ADAPTERS, RANK, SHAPES, Shape

PUBLISHED = Path(__file__).resolve().parents[2] / ".deps" / "tokenizers"
END = "<|endoftext|>"
ENDS = ["bos_token", "eos_token", "pad_token", "unk_token"]


def make_tokenizer(shape: Shape) -> PreTrainedTokenizerFast:
    if shape.tokenizer is None:
        return PreTrainedTokenizerFast(tokenizer_object=made_up_tokenizer(shape.vocabulary), **dict.fromkeys(ENDS, END))
    file = PUBLISHED / shape.tokenizer / "tokenizer.json"
    if not file.exists():
        sys.exit(f"{file} is missing: run ops/setup --tests")
    return PreTrainedTokenizerFast(tokenizer_file=str(file), **dict.fromkeys(ENDS, END))


def made_up_tokenizer(vocabulary: int) -> Tokenizer:
    """Makes a byte-level BPE tokenizer of made-up pairs. Prompts are token ids, but converters need a tokenizer of a known kind."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [(first, second) for first in letters for second in letters][: vocabulary - len(letters) - 1]
    words = [END, *letters, *(first + second for first, second in pairs)]
    tokenizer = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def make_model(shape: Shape, end: int) -> torch.nn.Module:
    ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    if shape.letter == "G":
        return GPT2LMHeadModel(GPT2Config(n_ctx=1024, **ends))  # llama.cpp's converter needs n_ctx
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
            vocab_size=shape.vocabulary, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000.0,
            tie_word_embeddings=True, **ends,
        )
    )  # fmt: skip


def main() -> None:
    shape, folder = SHAPES[sys.argv[1]], Path(sys.argv[2])
    torch.manual_seed(1)
    tokenizer = make_tokenizer(shape)
    model = make_model(shape, tokenizer.eos_token_id).to(torch.bfloat16)
    model.save_pretrained(folder / "hf")
    tokenizer.save_pretrained(folder / "hf")
    for index in range(ADAPTERS):
        # Without init_lora_weights=False one of the two factors would be zero.
        config = LoraConfig(r=RANK, lora_alpha=RANK, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
        adapter = get_peft_model(model, config)
        adapter.save_pretrained(folder / "adapters" / f"lora-{index}")
        model = adapter.unload()


main()
