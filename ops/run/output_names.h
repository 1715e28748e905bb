// The names that `lorry run` writes to: what its output stands for, and what must not be under the names beside it. Called by run.cpp
// before anything is read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lorry::ops {

// A file or folder that the run reads.
struct InputPath {
    std::string what;  // for messages: "input", "--choices"
    std::filesystem::path path;
};

// The file that is written through a name: the end of its symbolic links, so that files beside it are beside that one and a rename replaces
// no link. The name itself where that is not a file of a disk, such as /dev/null.
std::filesystem::path file_behind(const std::filesystem::path& name);

struct OutputNames {
    std::filesystem::path output;  // "-": standard output
    bool is_packed = false;        // written at the end, from rows beside it
    std::vector<InputPath> files = {};
    std::vector<InputPath> folders = {};  // whose files the run reads
};
// Throws UsageError, which says what to do, where the output is a pipe or the like that a run would wait for, where a folder has the name
// of a file that the run writes, and where such a name is that of a file that the run reads.
void check_output_names(const OutputNames& names);

}  // namespace lorry::ops
