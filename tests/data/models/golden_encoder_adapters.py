"""LoRA adapters for encoders and classifiers, in encoder_adapters/: adapter_config.json as peft's save_pretrained writes it,
tensors.json in place of the weights, and goldens. Heads that the base lacks come from the adapter (modules_to_save)."""

import json
import math
import shutil
import tempfile
import warnings
from pathlib import Path

from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer

import golden_adapters
import golden_encoder_cases
import golden_encoders
import golden_weights
from golden_weights import SQRT3

LENGTHS = (2, 9, 23)

# name -> (checkpoint, class that the adapter was trained on, labels, LoraConfig arguments). llama-mha is a generator, in checkpoints/.
# rows, which is no argument: by how many the vocabulary is resized.
ADAPTERS = {
    "bert-embed": (
        "bert", "BertModel", None, {"task_type": "FEATURE_EXTRACTION", "r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}),
    "bert-sentiment": (
        "bert", "BertForSequenceClassification", 2,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}),
    "bert-topics": (
        "bert", "BertForSequenceClassification", 5,
        {"task_type": "SEQ_CLS", "r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": ["query", "key", "value", "dense"]}),
    "bert-rerank": (
        "bert", "BertForSequenceClassification", 1,
        {"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": ["key", "value"], "modules_to_save": ["classifier"]}),
    "bert-pooler": (
        "bert", "BertForSequenceClassification", 3,
        {"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": ["query"], "modules_to_save": ["classifier", "pooler"]}),
    "bert-relabelled": (
        "bert-seq", "BertForSequenceClassification", 4,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 4, "target_modules": ["attention.output.dense", "intermediate.dense"]}),
    "bert-ner": (
        "bert", "BertForTokenClassification", 5,
        {"task_type": "TOKEN_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}),
    "roberta-classify": (
        "roberta", "RobertaForSequenceClassification", 3,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["query", "value"], "bias": "lora_only"}),
    "distilbert-classify": (
        "distilbert", "DistilBertForSequenceClassification", 2,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["q_lin", "v_lin"],
         "modules_to_save": ["pre_classifier", "classifier"]}),
    "electra-classify": (
        "electra", "ElectraForSequenceClassification", 3,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["query", "value", "embeddings_project"]}),
    "mpnet-classify": (
        "mpnet", "MPNetForSequenceClassification", 2,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["attn.q", "attn.k", "attn.v", "attn.o"]}),
    "modernbert-classify": (
        "modernbert", "ModernBertForSequenceClassification", 2,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["Wqkv", "Wi", "Wo"],
         "modules_to_save": ["head", "classifier"]}),
    "deberta-classify": (
        "deberta-v3", "DebertaV2ForSequenceClassification", 2,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["query_proj", "key_proj", "value_proj"],
         "modules_to_save": ["pooler", "classifier"]}),
    "bert-dora": (
        "bert", "BertForSequenceClassification", 3,
        {"task_type": "SEQ_CLS", "r": 3, "lora_alpha": 4, "use_dora": True, "target_modules": ["query", "dense"]}),
    "bert-embeddings": (
        "bert", "BertForSequenceClassification", 3,
        {"task_type": "SEQ_CLS", "r": 3, "lora_alpha": 4, "target_modules": ["query", "word_embeddings"]}),
    "distilbert-saved-embeddings": (
        "distilbert", "DistilBertForSequenceClassification", 2,
        {"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": ["v_lin"],
         "modules_to_save": ["word_embeddings", "pre_classifier", "classifier"]}),
    "bert-resized-embeddings": (
        "bert", "BertForSequenceClassification", 3,
        {"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": ["query"], "modules_to_save": ["word_embeddings", "classifier"],
         "rows": 6}),
    "deberta-dora": (
        "deberta-v3", "DebertaV2ForSequenceClassification", 2,
        {"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "use_dora": True, "target_modules": ["query_proj", "key_proj"],
         "modules_to_save": ["pooler", "classifier"]}),
    "llama-classify": (
        "llama-seq", "LlamaForSequenceClassification", 2,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}),
    "llama-causal-classify": (
        "llama-mha", "LlamaForSequenceClassification", 4,
        {"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": ["k_proj", "down_proj"], "modules_to_save": ["score"]}),
    "gemma-classify": (
        "gemma-seq", "GemmaForSequenceClassification", 2,
        {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}),
    "gpt-neox-causal-classify": (
        "gpt-neox", "GPTNeoXForSequenceClassification", 3,
        {"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": ["query_key_value"], "modules_to_save": ["score"]}),
    "qwen3-embed": (
        "qwen3-bare", "Qwen3Model", None,
        {"task_type": "FEATURE_EXTRACTION", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}),
}


def load_base(models, checkpoint, class_name, labels, rows):
    """The base as a fine-tuning script loads it: with the adapter's count of labels. Returns it with the names that were not in the
    checkpoint."""
    keys = {} if labels is None else {"num_labels": labels, "ignore_mismatched_sizes": True}
    generator = models / "checkpoints" / checkpoint
    if (generator / "model.safetensors").exists():
        model, info = golden_encoders.load(generator, class_name, pad_token_id=0, **keys)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            golden_encoders.materialize(generator if generator.exists() else models / "encoders" / checkpoint, Path(temporary))
            model, info = golden_encoders.load(temporary, class_name, **keys)
    if rows != 0:
        model.resize_token_embeddings(model.config.vocab_size + rows, mean_resizing=False)
    return model, set(info["missing_keys"]) | {entry[0] for entry in info["mismatched_keys"]}


def spread(name, shape, scalings):
    """Updates about as large as what they are added to; saved modules and biases as a checkpoint has them."""
    if "embed_tokens.lora_magnitude" in name:  # about as large as the norms of columns
        return 9, 2.5
    if ".lora_embedding_A" in name:
        return 0, golden_weights.rounded(SQRT3)
    if ".lora_embedding_B" in name:
        return 0, golden_weights.rounded(0.5 * SQRT3 / (scalings[name.split(".lora_")[0]] * math.sqrt(shape[1])))
    if ".lora_A" in name:
        return 0, golden_weights.rounded(SQRT3 / math.sqrt(shape[1]))
    if ".lora_B" in name and len(shape) == 2:
        return 0, golden_weights.rounded(0.8 * SQRT3 / (scalings[name.split(".lora_")[0]] * math.sqrt(shape[1])))
    return golden_weights.spread(name, shape)


def make_tensors(folder, model, checkpoint, arguments):
    """Writes adapter_config.json and tensors.json with the names that peft gives."""
    scalings = {path: module.scaling["default"] for path, module in model.named_modules() if isinstance(module, LoraLayer)}
    with tempfile.TemporaryDirectory() as temporary:
        golden_adapters.save(model, Path(temporary), checkpoint, arguments, {})
        shutil.copy(Path(temporary) / "adapter_config.json", folder)
        shapes = golden_weights.shapes_of(Path(temporary) / "adapter_model.safetensors")
    golden_weights.write_spread(folder, shapes, lambda name, shape: spread(name, shape, scalings))
    return set(shapes)


def write_adapter(folder, models, checkpoint, class_name, labels, arguments):
    golden_encoders.make_folder(folder)
    rows = arguments.pop("rows", 0)
    base, fresh = load_base(models, checkpoint, class_name, labels, rows)
    names = make_tensors(folder, get_peft_model(base, LoraConfig(**arguments)), checkpoint, arguments)
    missing = {name for name in fresh if f"base_model.model.{name}" not in names}
    assert not missing, f"{folder.name}: neither in the base nor in the adapter: {missing}"
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copy(folder / "adapter_config.json", temporary)
        golden_weights.write_safetensors(folder, Path(temporary) / "adapter_model.safetensors")
        model = PeftModel.from_pretrained(load_base(models, checkpoint, class_name, labels, rows)[0], temporary).eval()
        golden_adapters.check_loaded(model, Path(temporary))
    header = {"base": checkpoint, "architecture": class_name, "vocab_size": base.config.vocab_size}
    if labels is not None:
        header["labels"] = labels
    cases = golden_encoder_cases.make_cases(folder.name, base.config, LENGTHS)
    trained = [(path, parameter) for path, parameter in model.named_parameters() if "lora_" in path or "modules_to_save." in path]
    golden_encoder_cases.write_goldens(folder, model, header, cases, trained)


def write_all(folder, models, names):
    warnings.simplefilter("ignore")
    for name, (checkpoint, class_name, labels, arguments) in ADAPTERS.items():
        if not names or name in names:
            write_adapter(folder / name, models, checkpoint, class_name, labels, json.loads(json.dumps(arguments)))
