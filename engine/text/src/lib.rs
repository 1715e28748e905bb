//! Tokenization, incremental detokenization and chat templates as Hugging Face implements them, exported as the C functions of
//! lorry_text.h. Called only by the C++ classes in engine/text (tokenizer.cpp, detokenizer.cpp, chat_template.cpp).

mod abi;
mod chat_template;
mod classes;
mod detokenizer;
mod encoding;
mod growth;
mod jinja;
mod job_json;
mod settings;
mod tokenizer;
