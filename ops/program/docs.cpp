// `lorry docs`: prints a page of docs/ that is made from the program's own tables.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/program/reference.h"

namespace lorry::ops {
namespace {

std::string page_names() {
    std::string names;
    for (const ReferencePage& page : reference_pages()) names += fmt::format("{}{}", names.empty() ? "" : "|", page.name);
    return names;
}

class DocsCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("page", page_, "the page to print, as Markdown")->type_name(page_names())->required();
    }

    ExitCode run() override {
        const auto pages = reference_pages();
        const auto page = std::ranges::find_if(pages, [&](const ReferencePage& one) { return page_ == one.name; });
        if (page == pages.end()) throw UsageError(fmt::format("there is no page '{}'; the pages are {}", page_, page_names()));
        std::cout << page->text();
        return ExitCode::done;
    }

private:
    std::string page_;
};

}  // namespace

std::unique_ptr<Command> make_docs_command() { return std::make_unique<DocsCommand>(); }

}  // namespace lorry::ops
