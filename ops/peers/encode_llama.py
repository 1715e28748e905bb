"""Drives llama.cpp's embeddings through the low-level functions of llama-cpp-python. Run by ops/bench-peers."""

import llama_cpp
import numpy as np
from driver import Options, Request, serve
from encoder import TEXTS_MAX, Encoder

BATCH_TOKENS = 4096


class Llama(Encoder):
    def __init__(self, options: Options) -> None:
        self.task = options.task
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(options.model).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {options.model}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_seq_max = TEXTS_MAX
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS
        parameters.n_threads = parameters.n_threads_batch = options.threads
        parameters.embeddings = True
        parameters.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_MEAN
        parameters.kv_unified = True
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        self.width = llama_cpp.llama_model_n_embd(self.model)
        self.batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)
        self.engine = f"llama.cpp (llama-cpp-python {llama_cpp.__version__})"
        self.settings = (
            f"built with -march=native, {'q8_0' if options.precision == 'int8' else options.precision} weights; texts of similar lengths "
            "in batches of 1,024 or 4,096 tokens, without padding"
        )

    def run_batches(self, requests: list[Request], batches: list[list[int]]) -> list[list]:
        outputs: list[list] = [[] for _ in requests]
        for part in batches:
            row = 0
            for sequence, index in enumerate(part):
                for position, token in enumerate(requests[index].prompt):
                    self.batch.token[row] = token
                    self.batch.pos[row] = position
                    self.batch.n_seq_id[row] = 1
                    self.batch.seq_id[row][0] = sequence
                    self.batch.logits[row] = True
                    row += 1
            self.batch.n_tokens = row
            status = llama_cpp.llama_encode(self.context, self.batch)
            if status != 0:
                raise RuntimeError(f"llama_encode: {status}")
            for sequence, index in enumerate(part):
                vector = llama_cpp.llama_get_embeddings_seq(self.context, sequence)
                outputs[index] = np.ctypeslib.as_array(vector, (self.width,)).tolist()
        return outputs


serve(Llama)
