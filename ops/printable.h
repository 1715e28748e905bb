// Text for people. Names, ids, labels and texts come from strangers, and a terminal obeys some of their characters. Used where the program
// prints: run_program() for standard output and error, show_table() and the log's formatters.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace lorry::ops {

// The text as valid UTF-8 without characters that a terminal obeys or that change the order of others: controls (C0, DEL, C1), line and
// paragraph separators, and the controls of bidirectional text. Each becomes its escape as in JSON, such as \u001b, so JSON stays valid and
// keeps its meaning; control characters in `kept` stay. Idempotent.
std::string printable(std::string_view text, std::string_view kept = "\n\t");

// While it lives, what is written to the stream passes through printable(). Each text must be written whole. The stream must outlive it.
class PrintableStream {
public:
    explicit PrintableStream(std::ostream& stream);
    ~PrintableStream();
    PrintableStream(const PrintableStream&) = delete;
    PrintableStream& operator=(const PrintableStream&) = delete;

private:
    std::ostream& stream_;
    std::streambuf* const original_;
    const std::unique_ptr<std::streambuf> filter_;
};

}  // namespace lorry::ops
