"""Drives llama.cpp through the low-level functions of llama-cpp-python, with a loop around llama_decode. Run by ops/bench-peers."""

import os
from collections.abc import Iterable

import llama_cpp
import numpy as np
from driver import Options, Request, serve
from llama_grammars import Grammars

SEQUENCES_MAX = 64
SEQUENCE_TOKENS = 512
BATCH_TOKENS = 2048
SHARED_SEQUENCE = SEQUENCES_MAX  # contains the prefix of all prompts
WEIGHTS = {"bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}


class Llama:
    def __init__(self, options: Options) -> None:
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(options.model).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {options.model}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_seq_max = SEQUENCES_MAX + 1
        parameters.n_ctx = parameters.n_seq_max * SEQUENCE_TOKENS
        parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS
        parameters.n_threads = parameters.n_threads_batch = options.threads
        parameters.kv_unified = False
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        self.memory = llama_cpp.llama_get_memory(self.context)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self.grammars = Grammars(vocabulary, self.vocabulary)
        self.batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)
        self.engine = f"llama.cpp (llama-cpp-python {llama_cpp.__version__})"
        self.settings = (
            f"built with -march=native, {WEIGHTS[options.precision]} weights, f16 KV cache; new prompts together in "
            "batches of 2,048 tokens, then one token of every sequence a step; a KV stream for each sequence (unified, every token would "
            "look at all of them); what all prompts share is computed once and copied (llama_memory_seq_cp)"
            + (f"; {options.structures} of llama-cpp-python's converter, with the bounds of integers and without control characters; a "
               "grammar looks at all tokens if it refuses the likeliest" if options.structures else "")
        )

    def decode(self, rows: Iterable[tuple[int, int, int, bool]]) -> list[np.ndarray]:
        """Computes the rows (token, position, sequence, is_wanted). Returns the logits of the wanted rows, which the next call replaces."""
        wanted = []
        count = 0
        for count, (token, position, sequence, is_wanted) in enumerate(rows, 1):
            row = count - 1
            self.batch.token[row] = token
            self.batch.pos[row] = position
            self.batch.n_seq_id[row] = 1
            self.batch.seq_id[row][0] = sequence
            self.batch.logits[row] = is_wanted
            if is_wanted:
                wanted.append(row)
        self.batch.n_tokens = count
        status = llama_cpp.llama_decode(self.context, self.batch)
        if status != 0:
            raise RuntimeError(f"llama_decode: {status}")
        logits = (llama_cpp.llama_get_logits_ith(self.context, row) for row in wanted)
        return [np.ctypeslib.as_array(row, (self.vocabulary,)) for row in logits]

    def run(self, requests: list[Request], batch: int) -> list[list[int]]:
        llama_cpp.llama_memory_clear(self.memory, False)
        # At least one token of each prompt is not shared, as its logits are needed.
        shared = os.path.commonprefix([request.prompt[:-1] for request in requests]) if len(requests) > 1 else []
        if shared:
            self.decode((token, position, SHARED_SEQUENCE, False) for position, token in enumerate(shared))
        outputs: list[list[int]] = [[] for _ in requests]
        running: dict[int, int] = {}  # sequence -> request
        samplers: dict[int, object] = {}  # sequence -> its grammar's, if the request has a schema
        free = list(range(batch))[::-1]
        waiting = list(range(len(requests)))[::-1]

        def advance(sequences: list[int], logits: list[np.ndarray]) -> None:
            for sequence, row in zip(sequences, logits, strict=True):
                index, sampler = running[sequence], samplers.get(sequence)
                token = self.grammars.draw(sampler, row) if sampler else int(row.argmax())
                outputs[index].append(token)
                if len(outputs[index]) == requests[index].output_tokens or (sampler and self.grammars.is_end(token)):
                    if sampler:
                        llama_cpp.llama_sampler_free(samplers.pop(sequence))
                    llama_cpp.llama_memory_seq_rm(self.memory, sequence, -1, -1)
                    del running[sequence]
                    free.append(sequence)

        while waiting or running:
            rows: list[tuple[int, int, int, bool]] = []
            started = []
            while waiting and free and len(rows) + len(requests[waiting[-1]].prompt) - len(shared) <= BATCH_TOKENS:
                index, sequence = waiting.pop(), free.pop()
                running[sequence] = index
                started.append(sequence)
                if requests[index].schema:
                    samplers[sequence] = self.grammars.begin(requests[index].schema)
                if shared:
                    llama_cpp.llama_memory_seq_cp(self.memory, SHARED_SEQUENCE, sequence, -1, -1)
                prompt = requests[index].prompt
                rows += [(prompt[i], i, sequence, i == len(prompt) - 1) for i in range(len(shared), len(prompt))]
            if started:
                advance(started, self.decode(rows))
                continue
            sequences = list(running)
            last = [(requests[running[sequence]], outputs[running[sequence]]) for sequence in sequences]
            advance(sequences, self.decode((drawn[-1], len(request.prompt) + len(drawn) - 1, sequence, True)
                                           for sequence, (request, drawn) in zip(sequences, last, strict=True)))  # fmt: skip
        return outputs


serve(Llama)
