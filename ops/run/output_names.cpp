// Follows links, and compares the names of what is written with those of what is read.
#include "ops/run/output_names.h"

#include <algorithm>

#include <fmt/format.h>

#include "consumer/file/journal.h"
#include "consumer/file/packed_output.h"
#include "consumer/file/sink.h"
#include "ops/command.h"

namespace lorry::ops {
namespace {

using std::filesystem::file_type;
using std::filesystem::path;

constexpr int links_max = 40;  // as the system follows

path end_of_links(path name) {
    std::error_code none;
    for (int i = 0; i < links_max && std::filesystem::is_symlink(name, none); ++i) {
        const path target = std::filesystem::read_symlink(name, none);
        if (none) break;
        name = target.is_absolute() ? target : name.parent_path() / target;
    }
    return name;
}

file_type type_of(const path& name) {
    std::error_code none;
    return std::filesystem::status(name, none).type();
}

// A device such as /dev/null takes results. So does a pipe that another program has opened for this one: /dev/stdout, or >(PROGRAM) of a
// shell, whose names are links to no file. A pipe in a folder has perhaps no reader, and would be waited for.
void check_kind(const path& output) {
    const file_type type = type_of(output);
    const bool has_name = std::filesystem::exists(std::filesystem::symlink_status(end_of_links(output)));
    const char* what = type == file_type::fifo && has_name ? "a named pipe"
                       : type == file_type::socket         ? "a socket"
                       : type == file_type::block          ? "a block device"
                                                           : nullptr;
    if (what == nullptr) return;
    throw UsageError(fmt::format("-o {} is {}: give the name of a file, or -o - and redirect standard output", output.string(), what));
}

bool is_in(const path& file, const path& folder) {
    std::error_code none;
    const path inner = std::filesystem::canonical(file, none);
    const path outer = std::filesystem::canonical(folder, none);
    if (inner.empty() || outer.empty()) return false;
    return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

bool are_same(const path& one, const path& other) {
    std::error_code none;
    return std::filesystem::equivalent(one, other, none) && !none;
}

}  // namespace

path file_behind(const path& name) {
    const file_type type = type_of(name);
    return type == file_type::regular || type == file_type::not_found ? end_of_links(name) : name;
}

void check_output_names(const OutputNames& names) {
    if (names.output == "-") return;
    check_kind(names.output);
    const file_type type = type_of(names.output);
    if (type != file_type::regular && type != file_type::not_found) return;
    std::vector<path> beside = names.is_packed ? consumer::files_beside(names.output) : consumer::rewritten_files(names.output);
    beside.push_back(consumer::journal_of(names.output));
    for (const path& file : beside) {
        if (type_of(file) != file_type::directory) continue;
        throw UsageError(
            fmt::format("{} is a folder, and the run needs that name for a file: move the folder away, or give another -o", file.string()));
    }
    for (const InputPath& input : names.files) {
        if (are_same(input.path, names.output)) throw UsageError(fmt::format("{} and output are the same file", input.what));
        const auto same = std::ranges::find_if(beside, [&](const path& file) { return are_same(input.path, file); });
        if (same == beside.end()) continue;
        throw UsageError(fmt::format("{} is the name of a file that the run itself writes: rename it, or give another -o", same->string()));
    }
    const bool is_of_a_run = type == file_type::not_found || std::filesystem::exists(consumer::journal_of(names.output));
    for (const InputPath& folder : names.folders) {
        if (is_of_a_run || !is_in(names.output, folder.path)) continue;
        throw UsageError(fmt::format("-o {} is a file in {} {} that no run wrote: give another -o", names.output.string(), folder.what,
                                     folder.path.string()));
    }
}

}  // namespace lorry::ops
