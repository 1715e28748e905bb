//! Tokenization, incremental detokenization and chat templates as Hugging Face implements them, exported as the C functions of
//! lorry_text.h; grammars, as those of lorry_grammar.h; and Parquet files, as those of lorry_parquet.h. Called only by the C++ classes in
//! engine/text (tokenizer.cpp, detokenizer.cpp, chat_template.cpp, grammar.cpp, parquet.cpp).

mod abi;
mod chat_template;
mod classes;
mod convert;
mod detokenizer;
mod difference;
mod encoding;
mod fragments;
mod grammar;
mod growth;
mod jinja;
mod job_json;
mod memory;
mod parquet;
mod settings;
mod tokenizer;
