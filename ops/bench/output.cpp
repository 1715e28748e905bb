// Formats the provenance and writes text and JSON.
#include "ops/bench/output.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "kernels/cpu/isa.h"
#include "ops/command.h"
#include "ops/machine.h"
#include "ops/paths.h"

namespace lorry::ops {
namespace {

// Checks the file now, so that an error does not show only after the benchmark. Returns what is wrong, for CLI11; empty if nothing is.
std::string refuse_file(const std::string& file) {
    if (file.empty()) return "the file name is empty";
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::absolute(file, error).parent_path();
    if (!std::filesystem::is_directory(folder, error)) return fmt::format("{}: there is no folder {}", file, folder.string());
    return std::filesystem::is_directory(file, error) ? file + " is a folder" : "";
}

const char* used_isa(std::optional<kernels::CpuIsa> isa) { return kernels::cpu::name_of(kernels::cpu::usable_isa(isa)); }

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::now())); }

}  // namespace

std::optional<std::string> gpu_of(const kernels::DeviceInfo& device) {
    return device.has_own_memory ? std::optional(device.name) : std::nullopt;
}

std::string show_provenance(std::optional<kernels::CpuIsa> isa) {
    const kernels::cpu::Chip chip = kernels::cpu::this_chip();
    return fmt::format("on {}, family {} model {}, {}, with {}, on {}", cpu_model(), chip.family, chip.model, used_isa(isa), program_name(),
                       today());
}

schema::Json with_provenance(const schema::Json& results, std::optional<kernels::CpuIsa> isa) {
    const std::string commit = program_commit();
    schema::Json json = schema::Json::object({{"cpu", cpu_model()},
                                              {"chip", kernels::cpu::chip_name()},
                                              {"isa", used_isa(isa)},
                                              {"lorry", program_version()},
                                              {"commit", commit.empty() ? schema::Json() : schema::Json(commit)},
                                              {"date", today()}});
    for (const auto& [key, value] : *results.as_object()) json.set(key, value);
    return json;
}

void BenchOutput::declare(CLI::App& app) {
    app.add_flag("--json", json_, "print JSON instead of the text");
    app.add_option("--json-file", file_, "FILE for the JSON, in addition to what is printed")->check(refuse_file);
}

void BenchOutput::print(const std::string& text, const schema::Json& results, std::optional<kernels::CpuIsa> isa,
                        const std::optional<std::string>& gpu) const {
    const std::string json = with_provenance(results, isa).dump() + "\n";
    const std::string host = gpu ? fmt::format("on {}; the host ", *gpu) : "";
    std::cout << (json_ ? json : fmt::format("{}measured {}{}\n", text, host, show_provenance(isa))) << std::flush;
    if (!file_.empty()) write_text(file_, json);
}

}  // namespace lorry::ops
