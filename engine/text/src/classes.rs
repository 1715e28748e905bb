//! The tokenizer classes of transformers whose rules Lorry knows: which files they read and which special tokens they have unless the
//! configuration names others. Called by settings.rs and convert.

/// What a class does with its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bert,
    Mpnet,
    Roberta,
    Gpt2,
    Qwen2,
    Deberta,
    XlmRoberta,
    Camembert,
    DebertaV2,
    Albert,
    T5,
    Llama,
}

pub struct Class {
    pub kind: Kind,
    /// Without the suffix "Fast".
    pub names: &'static [&'static str],
    /// `model_type` of config.json, for models whose tokenizer_config.json does not name a class.
    pub model_types: &'static [&'static str],
    /// By name: `mask_token`, for example.
    pub tokens: &'static [(&'static str, &'static str)],
}

const BERT_TOKENS: &[(&str, &str)] =
    &[("unk_token", "[UNK]"), ("sep_token", "[SEP]"), ("pad_token", "[PAD]"), ("cls_token", "[CLS]"), ("mask_token", "[MASK]")];

const ROBERTA_TOKENS: &[(&str, &str)] = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("sep_token", "</s>"),
    ("cls_token", "<s>"),
    ("unk_token", "<unk>"),
    ("pad_token", "<pad>"),
    ("mask_token", "<mask>"),
];

const DEBERTA_TOKENS: &[(&str, &str)] = &[
    ("bos_token", "[CLS]"),
    ("eos_token", "[SEP]"),
    ("unk_token", "[UNK]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];

const CLASSES: &[Class] = &[
    Class {
        kind: Kind::Bert,
        names: &[
            "BertTokenizer",
            "DistilBertTokenizer",
            "ElectraTokenizer",
            "MobileBertTokenizer",
            "ConvBertTokenizer",
            "SqueezeBertTokenizer",
            "LxmertTokenizer",
            "LayoutLMTokenizer",
        ],
        model_types: &[
            "bert",
            "distilbert",
            "electra",
            "mobilebert",
            "convbert",
            "squeezebert",
            "lxmert",
            "layoutlm",
            "megatron-bert",
            "nezha",
            "ernie",
            "nomic_bert",
        ],
        tokens: BERT_TOKENS,
    },
    Class {
        kind: Kind::Mpnet,
        names: &["MPNetTokenizer"],
        model_types: &["mpnet"],
        tokens: &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("sep_token", "</s>"),
            ("cls_token", "<s>"),
            ("unk_token", "[UNK]"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
    },
    Class {
        kind: Kind::Roberta,
        names: &["RobertaTokenizer", "LongformerTokenizer", "BartTokenizer", "LEDTokenizer", "MvpTokenizer"],
        model_types: &["roberta", "roberta-prelayernorm", "longformer", "bart", "led", "ibert", "data2vec-text", "lilt", "mra"],
        tokens: ROBERTA_TOKENS,
    },
    Class {
        kind: Kind::Gpt2,
        names: &["GPT2Tokenizer"],
        model_types: &["gpt2", "gpt_neo", "gptj", "opt", "phi", "starcoder2"],
        tokens: &[("unk_token", "<|endoftext|>"), ("bos_token", "<|endoftext|>"), ("eos_token", "<|endoftext|>")],
    },
    Class {
        kind: Kind::Qwen2,
        names: &["Qwen2Tokenizer"],
        model_types: &["qwen2", "qwen2_moe", "qwen3", "qwen3_moe"],
        tokens: &[("unk_token", "<|endoftext|>"), ("eos_token", "<|endoftext|>"), ("pad_token", "<|endoftext|>")],
    },
    Class {
        kind: Kind::XlmRoberta,
        names: &["XLMRobertaTokenizer"],
        model_types: &["xlm-roberta", "xmod", "gte", "jina_embeddings_v3"],
        tokens: ROBERTA_TOKENS,
    },
    Class { kind: Kind::Camembert, names: &["CamembertTokenizer"], model_types: &["camembert"], tokens: ROBERTA_TOKENS },
    Class { kind: Kind::Deberta, names: &["DebertaTokenizer"], model_types: &["deberta"], tokens: DEBERTA_TOKENS },
    Class { kind: Kind::DebertaV2, names: &["DebertaV2Tokenizer"], model_types: &["deberta-v2"], tokens: DEBERTA_TOKENS },
    Class {
        kind: Kind::Albert,
        names: &["AlbertTokenizer"],
        model_types: &["albert", "yoso"],
        tokens: &[
            ("bos_token", "[CLS]"),
            ("eos_token", "[SEP]"),
            ("unk_token", "<unk>"),
            ("sep_token", "[SEP]"),
            ("pad_token", "<pad>"),
            ("cls_token", "[CLS]"),
            ("mask_token", "[MASK]"),
        ],
    },
    Class {
        kind: Kind::T5,
        names: &["T5Tokenizer", "MT5Tokenizer"],
        model_types: &["t5", "mt5", "switch_transformers"],
        tokens: &[("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")],
    },
    Class {
        kind: Kind::Llama,
        names: &["LlamaTokenizer"],
        model_types: &["llama", "mistral", "mixtral"],
        tokens: &[("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>")],
    },
];

/// A class of transformers 5 that builds its parts of the kind ByteLevel itself, with `add_prefix_space` of tokenizer_config.json, whatever
/// tokenizer.json says.
pub struct ByteLevelClass {
    names: &'static [&'static str],
    model_types: &'static [&'static str],
    /// Whether the post-processor of tokenizer.json stays. If not, no tokens are added to a text, not even with `add_bos_token`, which
    /// transformers ignores beside a tokenizer.json.
    pub keeps_post_processor: bool,
}

const BYTE_LEVEL_CLASSES: &[ByteLevelClass] = &[
    ByteLevelClass {
        names: &["RobertaTokenizer", "LongformerTokenizer", "BartTokenizer", "LEDTokenizer", "MvpTokenizer"],
        model_types: &["roberta", "roberta-prelayernorm", "longformer", "bart", "led", "ibert", "data2vec-text", "lilt", "mra"],
        keeps_post_processor: true,
    },
    ByteLevelClass {
        names: &["GPT2Tokenizer", "CodeGenTokenizer"],
        model_types: &["gpt2", "gpt_neo", "gptj", "opt", "phi", "starcoder2", "codegen"],
        keeps_post_processor: true,
    },
    ByteLevelClass { names: &["Qwen2Tokenizer"], model_types: &["qwen2", "qwen2_moe", "qwen3", "qwen3_moe"], keeps_post_processor: true },
    ByteLevelClass { names: &["CohereTokenizer"], model_types: &["cohere", "cohere2"], keeps_post_processor: true },
    ByteLevelClass { names: &["GPTNeoXTokenizer"], model_types: &["gpt_neox", "olmoe"], keeps_post_processor: false },
];

/// For these models transformers follows tokenizer.json alone, whatever class is named.
const MODELS_OF_THE_FILE: &[&str] = &["granite", "mistral", "mixtral", "modernbert", "olmo2", "phi3", "stablelm"];

/// For these, the model's class counts, whatever class is named.
const MODELS_OF_ONE_CLASS: &[&str] = &["qwen2"];

/// Whether tokenizer.json alone decides, whatever class is named.
pub fn follows_file(model_type: &str) -> bool {
    MODELS_OF_THE_FILE.contains(&model_type)
}

/// The arguments are those of `find`.
pub fn find_byte_level(name: &str, model_type: &str) -> Option<&'static ByteLevelClass> {
    let name = if MODELS_OF_ONE_CLASS.contains(&model_type) { "" } else { name.strip_suffix("Fast").unwrap_or(name) };
    let is_it =
        |class: &&ByteLevelClass| if name.is_empty() { class.model_types.contains(&model_type) } else { class.names.contains(&name) };
    BYTE_LEVEL_CLASSES.iter().find(is_it).filter(|_| !follows_file(model_type))
}

/// `name`: tokenizer_class of tokenizer_config.json or config.json; if it is empty, `model_type` decides, as in transformers.
pub fn find(name: &str, model_type: &str) -> Option<&'static Class> {
    let name = name.strip_suffix("Fast").unwrap_or(name);
    CLASSES.iter().find(|class| if name.is_empty() { class.model_types.contains(&model_type) } else { class.names.contains(&name) })
}
