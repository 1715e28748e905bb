//! Text for the engine: tokenization, incremental detokenization and chat templates as Hugging Face does them, behind the C functions of
//! lorry_text.h. Called by the C++ classes beside this crate (tokenizer.cpp, detokenizer.cpp, chat_template.cpp), by nobody else.

mod abi;
mod chat_template;
mod detokenizer;
mod python;
mod template_source;
mod tokenizer;
