"""Tiny encoders and classifiers of every family, in encoders/: config.json as save_pretrained writes it, tensors.json in place of the
weights, and goldens."""

import json
import shutil
import tempfile
from pathlib import Path

import transformers

import golden_encoder_cases
import golden_weights

LENGTHS = (1, 2, 17, 40, 62)
LENGTHS_SHORT = (1, 2, 9, 17, 41)  # for heads, over a model that is smaller than the bare one of the family


def labels(*names):
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


NER = labels("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def sizes(hidden, heads, intermediate, layers, positions):
    return {"hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": intermediate, "num_hidden_layers": layers,
            "max_position_embeddings": positions}  # fmt: skip


WIDE = sizes(36, 3, 52, 3, 64)
NARROW = sizes(24, 2, 44, 2, 44)


def bert(size=NARROW, **keys):
    return {**size, "vocab_size": 67, "layer_norm_eps": 1e-3, **keys}


def roberta(size=NARROW, **keys):  # positions start at pad_token_id + 1
    first = keys.get("pad_token_id", 1) + 1
    return {**bert(size), "max_position_embeddings": size["max_position_embeddings"] + first, "pad_token_id": 1, "bos_token_id": 0,
            "eos_token_id": 2, "type_vocab_size": 1, **keys}  # fmt: skip


def distilbert(size=NARROW, **keys):
    return {"dim": size["hidden_size"], "n_heads": size["num_attention_heads"], "hidden_dim": size["intermediate_size"],
            "n_layers": size["num_hidden_layers"], "max_position_embeddings": size["max_position_embeddings"], "vocab_size": 67,
            **keys}  # fmt: skip


def mpnet(size=NARROW, **keys):  # positions start at 2
    return {**bert(size), "max_position_embeddings": size["max_position_embeddings"] + 2, **keys}


def modernbert(size=NARROW, **keys):
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    return {**size, "vocab_size": 67, "num_hidden_layers": 4, "local_attention": 8, "global_attn_every_n_layers": 3, "norm_eps": 1e-3,
            **ids, **keys}  # fmt: skip


def deberta(size=NARROW, **keys):
    """As deberta-v3 has it, with smaller buckets."""
    return {**size, "vocab_size": 67, "layer_norm_eps": 1e-3, "relative_attention": True, "position_buckets": 8,
            "max_relative_positions": -1, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p",
            "type_vocab_size": 0, "position_biased_input": False, **keys}  # fmt: skip


def decoder(size=NARROW, **keys):
    return {**size, "vocab_size": 67, "num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **keys}


OLDER_KEYS = ("modernbert-seq-mean",)  # config.json as transformers 4 wrote it

# name -> (class, config)
CHECKPOINTS = {
    "bert": ("BertModel", bert(WIDE, vocab_size=113, layer_norm_eps=1e-12)),
    "bert-seq": (
        "BertForSequenceClassification",
        bert(problem_type="single_label_classification", **labels("negative", "neutral", "positive"))),
    "bert-multi": (
        "BertForSequenceClassification",
        bert(hidden_act="relu", type_vocab_size=3, problem_type="multi_label_classification",
             **labels("toxic", "insult", "threat", "spam"))),
    "bert-regression": ("BertForSequenceClassification", bert(hidden_act="gelu_new", num_labels=1, num_attention_heads=3)),
    "bert-tokens": ("BertForTokenClassification", bert(**NER)),
    "bert-mlm": ("BertForMaskedLM", bert(vocab_size=53)),
    "bert-mlm-untied": ("BertForMaskedLM", bert(hidden_act="relu", tie_word_embeddings=False, vocab_size=41)),
    "roberta": ("RobertaModel", roberta(sizes(28, 2, 60, 2, 64), vocab_size=97, layer_norm_eps=1e-5)),
    "roberta-seq": ("RobertaForSequenceClassification", roberta(num_labels=3)),
    "roberta-tokens": ("RobertaForTokenClassification", roberta(**NER)),
    "roberta-mlm": ("RobertaForMaskedLM", roberta(vocab_size=53)),
    "xlm-roberta-seq": ("XLMRobertaForSequenceClassification", roberta(num_labels=2, pad_token_id=3)),
    "xlm-roberta-tokens": ("XLMRobertaForTokenClassification", roberta(**NER)),
    "xlm-roberta-mlm": ("XLMRobertaForMaskedLM", roberta(vocab_size=53)),
    "camembert-tokens": ("CamembertForTokenClassification", roberta(**NER)),
    "distilbert": ("DistilBertModel", distilbert(sizes(30, 3, 44, 2, 64), vocab_size=101)),
    "distilbert-seq": ("DistilBertForSequenceClassification", distilbert(activation="relu", num_labels=3)),
    "distilbert-tokens": ("DistilBertForTokenClassification", distilbert(sinusoidal_pos_embds=True, **NER)),
    "distilbert-mlm": ("DistilBertForMaskedLM", distilbert(vocab_size=53)),
    "electra": ("ElectraModel", bert(sizes(32, 4, 52, 2, 64), vocab_size=97, embedding_size=20)),
    "electra-seq": ("ElectraForSequenceClassification", bert(embedding_size=16, num_labels=3)),
    "electra-tokens": ("ElectraForTokenClassification", bert(embedding_size=24, **NER)),
    "electra-mlm": ("ElectraForMaskedLM", bert(embedding_size=32, vocab_size=53)),
    "mpnet": ("MPNetModel", mpnet(sizes(28, 2, 44, 2, 64), vocab_size=97)),
    "mpnet-seq": ("MPNetForSequenceClassification", mpnet(num_labels=3)),
    "mpnet-tokens": ("MPNetForTokenClassification", mpnet(relative_attention_num_buckets=40, **NER)),
    "mpnet-mlm": ("MPNetForMaskedLM", mpnet(vocab_size=53)),
    "modernbert": ("ModernBertModel", modernbert(sizes(32, 2, 44, 5, 64), vocab_size=97, num_hidden_layers=5)),
    "modernbert-seq": ("ModernBertForSequenceClassification", modernbert(num_labels=3)),
    "modernbert-seq-mean": (
        "ModernBertForSequenceClassification",
        modernbert(num_labels=2, classifier_pooling="mean", classifier_activation="relu", global_rope_theta=500.0, local_rope_theta=90.0)),
    "modernbert-tokens": ("ModernBertForTokenClassification", modernbert(**NER)),
    "modernbert-mlm": ("ModernBertForMaskedLM", modernbert(vocab_size=53)),
    "modernbert-bias": (
        "ModernBertForSequenceClassification",
        modernbert(num_labels=3, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, hidden_activation="silu")),
    "deberta-v3": ("DebertaV2Model", deberta(sizes(30, 3, 44, 2, 64), vocab_size=97)),
    "deberta-v3-seq": ("DebertaV2ForSequenceClassification", deberta(num_labels=3)),
    "deberta-v3-tokens": ("DebertaV2ForTokenClassification", deberta(**NER)),
    "deberta-v2-conv": ("DebertaV2Model", deberta(vocab_size=53, conv_kernel_size=3, conv_act="gelu")),
    "deberta-v2-conv-seq": (
        "DebertaV2ForSequenceClassification",
        deberta(conv_kernel_size=3, conv_act="gelu", pooler_hidden_act="tanh", num_labels=2)),
    "deberta-v2-separate": ("DebertaV2ForTokenClassification", deberta(share_att_key=False, max_relative_positions=20, **NER)),
    "deberta-v2-c2p": (
        "DebertaV2ForSequenceClassification",
        deberta(share_att_key=False, pos_att_type="c2p", position_buckets=-1, max_relative_positions=11, norm_rel_ebd="none",
                type_vocab_size=2, position_biased_input=True, num_labels=3)),
    "deberta-v2-mlm": (
        "DebertaV2ForMaskedLM",
        deberta(share_att_key=False, pos_att_type="p2c", embedding_size=16, vocab_size=53)),
    "deberta-v3-mlm": ("DebertaV2ForMaskedLM", deberta(legacy=False, vocab_size=53)),
    "llama-seq": ("LlamaForSequenceClassification", decoder(num_labels=3)),
    "llama-tokens": ("LlamaForTokenClassification", decoder(**NER)),
    "mistral-seq": ("MistralForSequenceClassification", decoder(num_labels=4, sliding_window=7)),
    "mistral-tokens": ("MistralForTokenClassification", decoder(sliding_window=7, **NER)),
    "qwen2-seq": ("Qwen2ForSequenceClassification", decoder(num_labels=3)),
    "qwen3-seq": ("Qwen3ForSequenceClassification", decoder(num_labels=1, head_dim=14)),
    "qwen3-tokens": ("Qwen3ForTokenClassification", decoder(head_dim=14, **NER)),
    "gemma-seq": ("GemmaForSequenceClassification", decoder(head_dim=14, num_labels=3)),
    "gemma-tokens": ("GemmaForTokenClassification", decoder(head_dim=14, **NER)),
    "gemma2-seq": (
        "Gemma2ForSequenceClassification",
        decoder(head_dim=14, num_labels=2, sliding_window=7, query_pre_attn_scalar=20, attn_logit_softcapping=3.0)),
    "gemma3-seq": ("Gemma3TextForSequenceClassification", decoder(head_dim=14, num_labels=1, sliding_window=7, query_pre_attn_scalar=20)),
    "phi3-tokens": ("Phi3ForTokenClassification", decoder(**NER)),
    "olmo2-seq": ("Olmo2ForSequenceClassification", decoder(num_labels=3)),
    "gpt-neox-tokens": ("GPTNeoXForTokenClassification", decoder(rotary_pct=0.5, **NER)),
    "stablelm-seq": ("StableLmForSequenceClassification", decoder(num_labels=3, partial_rotary_factor=0.5)),
    "qwen3-bare": ("Qwen3Model", decoder(sizes(32, 4, 44, 2, 64), num_key_value_heads=2, head_dim=10, vocab_size=97)),
}


def make_folder(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def materialize(folder, into):
    """Makes the checkpoint that a folder describes."""
    shutil.copy(folder / "config.json", into)
    golden_weights.write_safetensors(folder, into / "model.safetensors")


def load(folder, class_name, **keys):
    """Returns the model and transformers' account of the names it found."""
    model, info = getattr(transformers, class_name).from_pretrained(
        folder, dtype="float32", attn_implementation="eager", experts_implementation="eager", output_loading_info=True, **keys)  # fmt: skip
    return model.eval(), info


def to_older_keys(path):
    """ModernBERT of transformers 4: the layers and their rotations follow from three numbers."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config.pop("layer_types")
    config["global_rope_theta"] = rope["full_attention"]["rope_theta"]
    config["local_rope_theta"] = rope["sliding_attention"]["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.48.0"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make_tensors(folder, class_name, config):
    """Writes config.json and tensors.json with the names that save_pretrained gives."""
    with tempfile.TemporaryDirectory() as temporary:
        model_class = getattr(transformers, class_name)
        model_class(model_class.config_class(**config)).save_pretrained(temporary)
        shutil.copy(Path(temporary) / "config.json", folder)
        shapes = golden_weights.shapes_of(Path(temporary) / "model.safetensors")
    golden_weights.write_spread(folder, shapes, golden_weights.spread)


def write_checkpoint(folder, class_name, config):
    make_folder(folder)
    make_tensors(folder, class_name, config)
    if folder.name in OLDER_KEYS:
        to_older_keys(folder / "config.json")
    with tempfile.TemporaryDirectory() as temporary:
        materialize(folder, Path(temporary))
        model, info = load(temporary, class_name)
        assert not any(info.values()), f"{folder.name}: {info}"
        for tensor in json.loads((folder / "tensors.json").read_text())["tensors"]:
            assert model.get_parameter(tensor["name"]).equal(golden_weights.weights(**tensor)), f"{folder.name}: {tensor['name']}"
    header = {"family": model.config.model_type, "architecture": class_name, "vocab_size": model.config.vocab_size}
    if "Classification" in class_name:
        header["labels"] = model.config.num_labels
    lengths = LENGTHS if model.config.max_position_embeddings >= max(LENGTHS) else LENGTHS_SHORT
    cases = golden_encoder_cases.make_cases(folder.name, model.config, lengths)
    golden_encoder_cases.write_goldens(folder, model, header, cases, list(model.named_parameters()))


def write_all(folder, names):
    for name, (class_name, config) in CHECKPOINTS.items():
        if not names or name in names:
            write_checkpoint(folder / name, class_name, config)
