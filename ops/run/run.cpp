// `lorry run`: runs the jobs of a file, or the rows of a table, through a worker's pipeline without Kafka. Called by the command table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "consumer/file/listed.h"
#include "consumer/file/sink.h"
#include "consumer/file/source.h"
#include "consumer/pipeline.h"
#include "engine/files.h"
#include "engine/text/chat_template.h"
#include "ops/adapter_folders.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/flag_checks.h"
#include "ops/paths.h"
#include "ops/pipeline_setup.h"
#include "ops/run/dry_run.h"
#include "ops/run/output.h"
#include "ops/run/progress.h"
#include "ops/signals.h"
#include "ops/units.h"
#include "schema/codec_error.h"

namespace lorry::ops {
namespace {

using consumer::RecordFormat;

std::string read_file(const std::string& flag, const std::string& file) {
    auto text = engine::read_text(file, {.kinds = engine::InputFile::Kinds::all});
    if (!text) throw UsageError(fmt::format("{}: {}", flag, text.error()));
    if (!schema::is_valid_utf8(*text)) throw UsageError(fmt::format("{} {}: the file is not UTF-8", flag, file));
    if (text->starts_with(schema::byte_order_mark)) text->erase(0, schema::byte_order_mark.size());
    return std::move(*text);
}

std::vector<std::string> read_lines(const std::string& flag, const std::string& file) {
    std::vector<std::string> lines;
    std::istringstream in(read_file(flag, file));
    for (std::string line; std::getline(in, line);) {
        if (line.ends_with('\r')) line.pop_back();
        if (!line.empty()) lines.push_back(line);
    }
    return lines;
}

std::string without_last_newline(std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
}

std::string hash_of(const std::string& text) {
    engine::ContentHash hash;
    hash.add_text(text);
    return hash.hex();
}

// A warning about empty cells, or nothing. Their rows were run: an empty cell may be intended.
std::string show(const consumer::EmptyCells& cells) {
    if (cells.rows == 0) return {};
    return fmt::format("warning: {} nothing in a column that the template uses; the first is line {}, with an empty '{}'\n",
                       cells.rows == 1 ? "1 row has" : show_count(cells.rows) + " rows have", cells.first_line, cells.first_column);
}

class RunCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    RecordFormat format_by_name() const;
    void check_flags() const;
    void check_adapter(const AdapterFolders& adapters) const;
    bool is_table() const { return !id_column_.empty(); }
    RecordFormat format() const { return csv_ ? RecordFormat::csv : RecordFormat::lines; }
    std::optional<consumer::Table> make_table(const Settings& settings, consumer::RunIdentity& identity) const;
    consumer::RunIdentity identity_of(const EngineSetup& setup, const Settings& settings) const;
    std::unique_ptr<consumer::FileSource> make_source(const consumer::Table* table, consumer::RecordSet done) const;
    ExitCode run_dry(consumer::FileSource& source, const AdapterFolders& adapters, EngineSetup& setup, const Settings& settings) const;
    ExitCode haul(EngineSetup& setup, const AdapterFolders& adapters, const consumer::Table* table, RunOutput output,
                  const Settings& settings, SignalWatcher& signals) const;
    ExitCode sum_up(const RunProgress& progress, const RunOutput& output, const consumer::EmptyCells& empty_cells, std::int64_t done_before,
                    bool stopped) const;

    Configuration configuration_;
    std::string input_;
    std::string output_;
    bool overwrite_ = false;
    bool retry_failed_ = false;
    bool dry_run_ = false;
    bool json_ = false;
    std::int64_t sample_ = 0;

    // For tables.
    std::string id_column_;
    std::string template_;
    std::string choices_;
    std::string system_;
    std::string adapter_ = "base";
    std::string adapter_column_;
    std::string endpoint_;
    std::string table_format_;
    std::string result_prefix_;
    std::optional<std::int64_t> max_tokens_;
    double temperature_ = 0.0;

    // Set by run().
    bool csv_ = false;
    std::optional<consumer::FileSummary> summary_;
    std::optional<consumer::RecordSet> chosen_;
    std::string topic_;
};

void RunCommand::declare(CLI::App& app) {
    app.add_option("input", input_, "OpenAI Batch lines (JSONL); with --id a table: CSV, or a JSON object per line; '-' is standard input")
        ->required()
        ->type_name("IN");
    app.add_option("-o,--output", output_, "results, appended as they finish; '-' is standard output. A stopped run is resumed here")
        ->type_name("OUT");
    app.add_flag("--overwrite", overwrite_, "discard the contents of OUT and begin again");
    app.add_flag("--retry-failed", retry_failed_, "run again the jobs whose results in OUT are errors");
    app.add_flag("--dry-run", dry_run_, "check all jobs, show one finished prompt, estimate the time; write nothing");
    app.add_option("--sample", sample_, "run only N jobs, spread over the file")->type_name("N")->check(whole_number_from(1));
    app.add_flag("--json", json_, "print the summary as JSON on standard output");

    const std::string table = "Tables";
    app.add_option("--id", id_column_, "the input is a table; this column names its rows")->type_name("COLUMN")->group(table);
    app.add_option("--template", template_, "file with the prompt; {{ column }} is replaced by a row's field")
        ->type_name("FILE")
        ->group(table);
    app.add_option("--choices", choices_, "file with labels, one per line: each row gets the most probable one")
        ->type_name("FILE")
        ->group(table);
    app.add_option("--system", system_, "file with the system message")->type_name("FILE")->group(table);
    app.add_option("--adapter", adapter_, "the adapter for all rows")->type_name("NAME")->group(table)->default_str("base");
    app.add_option("--adapter-column", adapter_column_, "column that names each row's adapter")->type_name("COLUMN")->group(table);
    app.add_option("--max-tokens", max_tokens_, "the most tokens drawn per row")->type_name("N")->group(table)->check(whole_number_from(1));
    app.add_option("--temperature", temperature_, "0 draws the most probable token")
        ->type_name("T")
        ->group(table)
        ->check(CLI::Range(0.0, 2.0))
        ->default_str("0");
    app.add_option("--endpoint", endpoint_, "chat (default where the model has a chat template) or completions")
        ->group(table)
        ->check(CLI::IsMember({"chat", "completions"}));
    app.add_option("--format", table_format_, "csv or jsonl (default: by the extension of IN, .csv or .jsonl)")
        ->group(table)
        ->check(CLI::IsMember({"csv", "jsonl"}));
    app.add_option("--result-prefix", result_prefix_, "prefix of the names of the added columns")->type_name("TEXT")->group(table);

    configuration_.declare(app, {SettingScope::model, SettingScope::jobs});
}

// Without --id the input is job lines, whatever its name; a name of another format is refused before a line is read.
RecordFormat RunCommand::format_by_name() const {
    std::string ending = std::filesystem::path(input_).extension();
    std::ranges::transform(ending, ending.begin(),
                           [](char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter; });
    for (const char* packed : {".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".xlsx", ".ods", ".parquet"}) {
        if (ending == packed) throw UsageError(fmt::format("{}: {} files are not read: unpack it{}", input_, packed,
                                                        is_table() ? ", or save it as CSV" : ""));
    }
    if (!is_table()) {
        if (ending == ".csv" || ending == ".tsv") {
            throw UsageError(fmt::format("{} is a table: name its rows with --id COLUMN and give a prompt with --template FILE", input_));
        }
        return RecordFormat::lines;
    }
    if (!table_format_.empty()) return table_format_ == "csv" ? RecordFormat::csv : RecordFormat::lines;
    if (ending == ".csv") return RecordFormat::csv;
    if (ending == ".jsonl" || ending == ".ndjson" || ending == ".json") return RecordFormat::lines;
    if (ending == ".tsv") {
        throw UsageError(fmt::format("{}: columns separated by tabs are not read: save the table with commas, as CSV", input_));
    }
    throw UsageError(fmt::format("{}: its name does not say which format the table has: give --format csv or --format jsonl", input_));
}

// An adapter for all rows must exist and be usable before anything is written.
void RunCommand::check_adapter(const AdapterFolders& adapters) const {
    const consumer::ModelName model = adapters.resolve(adapter_, consumer::Clock::now());
    if (model.kind == consumer::ModelName::Kind::refused) throw UsageError(fmt::format("--adapter {}: {}", adapter_, model.refusal));
    if (model.kind != consumer::ModelName::Kind::unknown) return;
    const std::vector<std::string> names = adapters.names();
    throw UsageError(fmt::format("--adapter {}: there is no adapter of that name{}", adapter_,
                                 names.empty() ? ": give the folder whose sub-folders are the adapters with --adapters DIR"
                                               : fmt::format(" in --adapters, which has: {}", fmt::join(names, ", "))));
}

void RunCommand::check_flags() const {
    const bool from_stdin = consumer::is_standard_input(input_);
    if (output_.empty() && !dry_run_) throw UsageError("no output is given: pass -o OUT ('-' for standard output)");
    if (dry_run_ && retry_failed_) throw UsageError("--dry-run checks all jobs and --retry-failed runs some of them: give one of them");
    if (json_ && output_ == "-" && !dry_run_) throw UsageError("--json and -o - both write to standard output: give one of them");
    if (!from_stdin) require_file(input_);
    if (!from_stdin && std::filesystem::exists(output_) && std::filesystem::equivalent(input_, output_)) {
        throw UsageError("input and output are the same file");
    }
    if (!dry_run_ && output_ != "-") require_writable("-o", output_);
    if (from_stdin && sample_ > 0) throw UsageError("--sample spreads over a file: standard input cannot be read twice");
    if (!choices_.empty() && (max_tokens_ || temperature_ > 0.0)) {
        throw UsageError("--choices takes the most probable label and draws no tokens: leave --max-tokens and --temperature out");
    }
    if (is_table() && template_.empty()) throw UsageError("--id makes the input a table, which needs a prompt: give --template FILE");
    const bool is_for_rows = adapter_ != "base" || max_tokens_ || temperature_ > 0.0;
    if (!is_table() && is_for_rows) {
        throw UsageError(
            "--adapter, --max-tokens and --temperature are for tables, whose rows --id names: in a file of jobs, each job names its own");
    }
    if (!is_table() && !(template_ + choices_ + system_ + adapter_column_ + endpoint_ + table_format_ + result_prefix_).empty()) {
        throw UsageError("the flags for tables need --id COLUMN, which names the rows");
    }
}

std::optional<consumer::Table> RunCommand::make_table(const Settings& settings, consumer::RunIdentity& identity) const {
    if (!is_table()) return std::nullopt;
    const bool chat = endpoint_.empty() ? engine::ChatTemplate::load(settings.model).has_value() : endpoint_ == "chat";
    consumer::TableOptions options{.csv = csv_,
                                   .id_column = id_column_,
                                   .prompt_template = without_last_newline(read_file("--template", template_)),
                                   .system = system_.empty() ? std::string() : without_last_newline(read_file("--system", system_)),
                                   .choices = choices_.empty() ? std::vector<std::string>() : read_lines("--choices", choices_),
                                   .chat = chat,
                                   .model = adapter_,
                                   .model_column = adapter_column_.empty() ? std::nullopt : std::optional(adapter_column_),
                                   .max_tokens = max_tokens_,
                                   .temperature = temperature_,
                                   .result_prefix = result_prefix_};
    if (!choices_.empty() && options.choices.size() < 2)
        throw UsageError(fmt::format("--choices {}: give at least two labels, one per line", choices_));
    if (const auto choice = consumer::repeated(options.choices))
        throw UsageError(fmt::format("--choices {}: the label '{}' occurs twice: take one out", choices_, schema::shortened(*choice)));
    if (!options.system.empty() && !chat) throw UsageError("--system needs --endpoint chat: plain prompts have no roles");
    std::string choices;
    for (const std::string& choice : options.choices) choices += choice + "\n";
    const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
    identity.insert(identity.end(), {{"id column", id_column_},
                                     {"template", hash_of(options.prompt_template), shown(options.prompt_template)},
                                     {"system message", hash_of(options.system), shown(options.system)},
                                     {"choices", hash_of(choices), shown(fmt::format("{}", fmt::join(options.choices, ", ")))},
                                     {"endpoint", chat ? "chat" : "completions"},
                                     {"adapter", adapter_},
                                     {"adapter column", adapter_column_},
                                     {"max tokens", max_tokens_ ? std::to_string(*max_tokens_) : "by default"},
                                     {"temperature", fmt::format("{}", temperature_)},
                                     {"format", csv_ ? "csv" : "jsonl"},
                                     {"result prefix", result_prefix_}});
    std::string header;
    if (csv_) {
        consumer::FileReader reader(input_, format(), static_cast<std::size_t>(settings.job_bytes_max.count));
        auto first = reader.next(std::chrono::seconds(60));
        if (!first) throw UsageError(fmt::format("{} is empty: a CSV table begins with the names of its columns", input_));
        if (first->cut) {
            throw UsageError(
                fmt::format("{}: the first line, which names the columns, is longer than the {} bytes of job_bytes_max: "
                            "shorten the names or take out columns, or raise --job-bytes-max",
                            input_, settings.job_bytes_max.count));
        }
        header = std::move(first->text);
    }
    return consumer::Table(std::move(options), header);
}

consumer::RunIdentity RunCommand::identity_of(const EngineSetup& setup, const Settings& settings) const {
    consumer::RunIdentity identity = {{"model", setup.model_fingerprint(), settings.model},
                                      {"base name", setup.reply().base_name},
                                      {"dtype", settings.dtype},
                                      {"quantize", settings.quantize},
                                      {"job_bytes_max", std::to_string(settings.job_bytes_max.count)},
                                      {"sample", sample_ > 0 ? show_count(sample_, "job") : "none"}};
    // Omitted unless given, so that runs that began before the setting existed can be resumed.
    if (settings.kv_dtype != "auto") identity.push_back({"kv_dtype", settings.kv_dtype});
    if (settings.isa != "auto") identity.push_back({"isa", settings.isa});
    if (summary_) {
        identity.insert(identity.begin(),
                        {{"input", topic_}, {"input size", fmt::format("{} bytes", summary_->bytes)}, {"input content", summary_->hash}});
    }
    return identity;
}

std::unique_ptr<consumer::FileSource> RunCommand::make_source(const consumer::Table* table, consumer::RecordSet done) const {
    std::optional<std::int64_t> total;
    if (summary_) total = sample_ > 0 ? std::min(sample_, summary_->records) : summary_->records;
    return std::make_unique<consumer::FileSource>(consumer::FileSourceOptions{
        .file = input_, .topic = topic_, .format = format(), .table = table, .done = std::move(done), .chosen = chosen_, .total = total});
}

ExitCode RunCommand::run() {
    SignalWatcher signals;
    std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond the file size limit fails and is reported, as on a full disk
    const Settings settings = configuration_.load();
    check_flags();
    csv_ = format_by_name() == RecordFormat::csv;
    if (csv_ && consumer::is_standard_input(input_)) {
        throw UsageError("a CSV table comes from a file, because its header is read twice: save it to a file first");
    }
    topic_ = consumer::is_standard_input(input_) ? "stdin" : std::filesystem::path(input_).filename().string();
    const engine::ModelConfig config = check_folders(settings);
    const AdapterFolders adapters(settings.adapters, base_name_of(settings), config);
    if (is_table()) check_adapter(adapters);
    if (!adapter_column_.empty() && settings.adapters.empty()) {
        throw UsageError("--adapter-column names adapters: give the folder that holds them with --adapters DIR");
    }
    consumer::RunIdentity table_identity;
    const std::optional<consumer::Table> table = make_table(settings, table_identity);
    const consumer::Table* const rows = table ? &*table : nullptr;

    // The slow part, after all mistakes in the call were reported.
    if (!consumer::is_standard_input(input_)) summary_ = consumer::summarize_file(input_, format());
    if (sample_ > 0) chosen_ = consumer::spread_sample(input_, format(), sample_, summary_->records);
    EngineSetup setup(settings);
    std::cerr << setup.describe();
    consumer::RunIdentity identity = identity_of(setup, settings);
    identity.insert(identity.end(), table_identity.begin(), table_identity.end());
    if (dry_run_) {
        const auto source = make_source(rows, {});
        return run_dry(*source, adapters, setup, settings);
    }
    RunOutput output =
        open_run_output({.output = output_,
                         .resumable = summary_.has_value(),
                         .identity = std::move(identity),
                         .format = format(),
                         .overwrite = overwrite_,
                         .retry_failed = retry_failed_,
                         .hash_of_adapter = [&](const std::string& name) { return adapters.resolve(name, consumer::Clock::now()).hash; }});
    return haul(setup, adapters, rows, std::move(output), settings, signals);
}

ExitCode RunCommand::run_dry(consumer::FileSource& source, const AdapterFolders& adapters, EngineSetup& setup,
                             const Settings& settings) const {
    const DryRunReport report = dry_run(source, adapters, setup, settings);
    std::cerr << show(report) << show(source.empty_cells());
    if (json_) {
        schema::Json json = json_of(report);
        json.set("rows_with_empty_cells", source.empty_cells().rows);
        std::cout << json.dump() << '\n';
    }
    return report.refused > 0 ? ExitCode::failed : ExitCode::done;
}

ExitCode RunCommand::haul(EngineSetup& setup, const AdapterFolders& adapters, const consumer::Table* table, RunOutput output,
                          const Settings& settings, SignalWatcher& signals) const {
    const std::int64_t done_before = output.done.size();
    if (output.retried > 0) std::cerr << fmt::format("running {} again\n", show_count(output.retried, "failed job"));
    if (done_before > 0) {
        std::cerr << fmt::format("resuming: {} of {} jobs are already in {}\n", show_count(done_before), show_count(summary_->records),
                                 output_);
    }
    const auto source = make_source(table, std::exchange(output.done, {}));
    consumer::FileSink sink({.file = output_, .begin_bytes = output.begin_bytes, .table = table},
                            output.journal ? &*output.journal : nullptr);
    const NoCancels no_cancels;
    RunProgress progress(source->backlog(), done_before);
    consumer::Pipeline pipeline({.source = *source,
                                 .sink = sink,
                                 .adapters = adapters,
                                 .cancels = no_cancels,
                                 .preparer = setup.preparer(),
                                 .engine = setup.engine(),
                                 .reply = setup.reply(),
                                 .observer = progress},
                                pipeline_options(settings, setup.engine(), "run"));
    {
        const SignalWatcher::Armed armed(signals, [&] {
            std::cerr << fmt::format("\nstopping: finishing the running jobs ({}), {}\n", show_count(progress.running(), "request"),
                                     summary_ ? "the others are left for later (interrupt again to stop at once; nothing is lost)"
                                              : "the others have no result (interrupt again to stop at once)");
            pipeline.request_stop();
        });
        try {
            pipeline.run();
        } catch (const std::exception& error) {
            if (!output.journal) throw;
            throw std::runtime_error(
                fmt::format("{}\nno result is lost; after fixing this, resume with:\n  {}", error.what(), resume_command()));
        }
    }
    if (output.journal) output.journal->end();
    progress.finish();
    return sum_up(progress, output, source->empty_cells(), done_before, signals.has_stopped());
}

ExitCode RunCommand::sum_up(const RunProgress& progress, const RunOutput& output, const consumer::EmptyCells& empty_cells,
                            std::int64_t done_before, bool stopped) const {
    const ModelTally& total = progress.tally().total();
    std::cerr << progress.tally().table(progress.seconds()) << progress.tally().errors() << show(empty_cells);
    const std::int64_t jobs = total.jobs + done_before;
    const std::int64_t failed = total.failed + output.failed_before;
    if (done_before > 0) {
        std::cerr << fmt::format("with earlier runs: {}, {} ok, {} failed\n", show_count(jobs, "job"), show_count(jobs - failed),
                                 show_count(failed));
    }
    if (json_) {
        schema::Json json = progress.tally().json(progress.seconds());
        json.set("failed_before", output.failed_before);
        json.set("rows_with_empty_cells", empty_cells.rows);
        json.set("in_output", schema::Json::object({{"jobs", jobs}, {"ok", jobs - failed}, {"failed", failed}}));
        json.set("stopped", stopped);
        std::cout << json.dump() << '\n';
    }
    if (stopped) {
        std::cerr << fmt::format("stopped after {} in {}", show_count(total.jobs, "job"),
                                 show_duration(std::chrono::milliseconds(static_cast<std::int64_t>(progress.seconds() * 1000.0))));
        std::cerr << (output.journal ? "; resume with:\n  " + resume_command() + "\n" : "; it cannot be resumed without an input file\n");
        return ExitCode::failed;
    }
    std::cerr << fmt::format("{} in {}: {}\n", show_count(total.jobs, "job"),
                             show_duration(std::chrono::milliseconds(static_cast<std::int64_t>(progress.seconds() * 1000.0))), output_);
    if (failed == 0) return ExitCode::done;
    std::cerr << show_count(failed, "job") << " failed; the results say why.";
    if (output.journal) {
        std::cerr << fmt::format(
            " After fixing this, --retry-failed runs these jobs again:\n  {} --retry-failed\n"
            "Do not change the input: put lines that need changing into a file of their own and give another -o.",
            resume_command());
    }
    std::cerr << '\n';
    return ExitCode::failed;
}

}  // namespace

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace lorry::ops
