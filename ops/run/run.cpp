// `lorry run`: runs the jobs of a file, or the rows of a table (table_flags.h), through a worker's pipeline without Kafka. Called by the
// command table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>

#include <fmt/format.h>

#include "consumer/file/packed_output.h"
#include "consumer/file/parquet_lines.h"
#include "consumer/file/sink.h"
#include "consumer/file/source.h"
#include "consumer/file/table_csv.h"
#include "consumer/pipeline.h"
#include "ops/adapter_folders.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/flag_checks.h"
#include "ops/paths.h"
#include "ops/pipeline_setup.h"
#include "ops/run/dry_run.h"
#include "ops/run/input_format.h"
#include "ops/run/output.h"
#include "ops/run/output_names.h"
#include "ops/run/progress.h"
#include "ops/run/table_flags.h"
#include "ops/signals.h"
#include "ops/units.h"
#include "schema/codec_error.h"

namespace lorry::ops {
namespace {

// A warning about empty cells, or nothing. Their rows were run: an empty cell may be intended.
std::string show(const consumer::EmptyCells& cells) {
    if (cells.rows == 0) return {};
    return fmt::format("warning: {} nothing in a column that the prompt uses; the first is line {}, with an empty '{}'\n",
                       cells.rows == 1 ? "1 row has" : show_count(cells.rows) + " rows have", cells.first_line, cells.first_column);
}

class RunCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    void check_flags() const;
    void check_names(const Settings& settings) const;
    bool is_csv() const { return format_.records == consumer::RecordFormat::csv; }
    bool can_resume(const RunOutput& output) const;
    consumer::OutputRow output_row() const;
    consumer::FileFormat appended_format() const;
    std::optional<char> output_delimiter() const;
    std::optional<consumer::PackedOutput> packed_output(const consumer::Table* table) const;
    std::optional<TableFlags::Made> make_table(const Settings& settings, const engine::ModelConfig& config, const AdapterFolders& adapters);
    consumer::RunIdentity identity_of(const EngineSetup& setup, const Settings& settings) const;
    std::unique_ptr<consumer::FileSource> make_source(const consumer::Table* table, consumer::RecordSet done) const;
    ExitCode run_dry(consumer::FileSource& source, const AdapterFolders& adapters, EngineSetup& setup, const Settings& settings) const;
    std::optional<std::int64_t> jobs() const;
    ExitCode haul(EngineSetup& setup, const AdapterFolders& adapters, const consumer::Table* table, RunOutput output,
                  const Settings& settings, SignalWatcher& signals) const;
    void pack(const consumer::PackedOutput& output) const;
    ExitCode sum_up(const RunProgress& progress, const RunOutput& output, const consumer::EmptyCells& empty_cells, std::int64_t done_before,
                    bool stopped) const;

    Configuration configuration_;
    std::string input_;
    std::string output_;
    bool overwrite_ = false;
    consumer::Retried retried_;
    bool dry_run_ = false;
    bool json_ = false;
    std::int64_t sample_ = 0;

    TableFlags table_flags_;

    // Set by run().
    consumer::FileFormat format_;
    OutputFormat output_format_;
    std::filesystem::path written_;  // the file behind output_
    std::optional<consumer::FileSummary> summary_;
    std::optional<consumer::RecordSet> chosen_;
    std::string topic_;
};

void RunCommand::declare(CLI::App& app) {
    app.add_option("input", input_,
                   "OpenAI Batch lines (JSONL); with --text or --template a table: CSV, or a JSON object per line. Compressed "
                   "with gzip or zstd or not; '-' is standard input")
        ->required()
        ->type_name("IN");
    app.add_option("-o,--output", output_, "results, appended as they finish; '-' is standard output. A stopped run is resumed here")
        ->type_name("OUT");
    app.add_flag("--overwrite", overwrite_, "discard the contents of OUT and begin again");
    app.add_flag("--retry-failed", retried_.failed, "run again the jobs whose results in OUT are errors");
    app.add_flag("--retry-cut", retried_.cut, "run again the rows whose answers were cut, now with a larger --max-tokens");
    app.add_flag("--dry-run", dry_run_, "check all jobs, show one finished prompt, estimate the time; write nothing");
    app.add_option("--sample", sample_, "run only N jobs, spread over the file")->type_name("N")->check(whole_number_from(1));
    app.add_flag("--json", json_, "print the summary as JSON on standard output");

    table_flags_.declare(app);
    configuration_.declare(app, {SettingScope::model, SettingScope::jobs});
}

void RunCommand::check_flags() const {
    const bool from_stdin = consumer::is_standard_input(input_);
    if (output_.empty() && !dry_run_) throw UsageError("no output is given: pass -o OUT ('-' for standard output)");
    if (dry_run_ && retried_.failed) throw UsageError("--dry-run checks all jobs and --retry-failed runs some of them: give one of them");
    if (dry_run_ && retried_.cut) throw UsageError("--dry-run checks all jobs and --retry-cut runs some of them: give one of them");
    if (json_ && output_ == "-" && !dry_run_) throw UsageError("--json and -o - both write to standard output: give one of them");
    if (!from_stdin) require_file(input_);
    if (!dry_run_ && output_ != "-") require_writable("-o", file_behind(output_));
    if (from_stdin && sample_ > 0) throw UsageError("--sample spreads over a file: standard input cannot be read twice");
    table_flags_.check();
}

// Nothing that the run reads is written by it.
void RunCommand::check_names(const Settings& settings) const {
    if (dry_run_) return;
    OutputNames names{.output = written_, .is_packed = output_format_.packing.has_value(), .files = table_flags_.files()};
    names.files.push_back({.what = "input", .path = consumer::is_standard_input(input_) ? "/dev/stdin" : input_});
    if (const auto file = configuration_.file()) names.files.push_back({.what = "--config " + file->string(), .path = *file});
    names.folders = {{.what = "--model", .path = settings.model}, {.what = "--adapters", .path = settings.adapters}};
    check_output_names(names);
}

bool RunCommand::can_resume(const RunOutput& output) const { return summary_ && (output.journal || output_format_.packing); }

// A copy of a Parquet input keeps its columns, so that only the results are to be stored.
consumer::OutputRow RunCommand::output_row() const {
    const bool is_parquet = output_format_.packing == consumer::PackedFormat::parquet;
    if (is_parquet && format_.records == consumer::RecordFormat::parquet) return consumer::OutputRow::results;
    return is_csv() && output_format_.rows == consumer::RecordFormat::lines ? consumer::OutputRow::object : consumer::OutputRow::as_input;
}

// Of the results as they are appended.
consumer::FileFormat RunCommand::appended_format() const {
    return {.records = output_format_.rows, .delimiter = output_delimiter().value_or(format_.delimiter)};
}

// A name that ends in .csv takes any delimiter but tabs.
std::optional<char> RunCommand::output_delimiter() const {
    const bool has_tabs = output_format_.delimiter == '\t' || format_.delimiter == '\t';
    return has_tabs ? output_format_.delimiter : std::nullopt;
}

std::optional<consumer::PackedOutput> RunCommand::packed_output(const consumer::Table* table) const {
    if (!output_format_.packing) return std::nullopt;
    consumer::PackedOutput output{.file = written_, .format = *output_format_.packing, .rows = appended_format()};
    if (output.format != consumer::PackedFormat::parquet) return output;
    if (format_.records == consumer::RecordFormat::parquet)
        output.parquet.input = input_;
    else
        output.parquet.columns = table->columns();
    output.parquet.added = table->added_columns();
    return output;
}

std::optional<TableFlags::Made> RunCommand::make_table(const Settings& settings, const engine::ModelConfig& config,
                                                       const AdapterFolders& adapters) {
    if (!table_flags_.is_table()) return std::nullopt;
    std::string header;
    std::optional<std::vector<std::string>> columns;
    if (format_.records == consumer::RecordFormat::parquet) columns = consumer::parquet_facts(input_).columns;
    if (is_csv()) {
        auto read = read_csv_header(input_, table_flags_.format(), static_cast<std::size_t>(settings.job_bytes_max.count), format_);
        header = std::move(read.text);
        if (read.delimiter_was_found) {
            std::cerr << fmt::format("{}: the columns are separated by {}\n", input_, consumer::row_of_delimiter(format_.delimiter).plural);
        }
    }
    auto made = table_flags_.make({.settings = settings,
                                   .config = config,
                                   .adapters = adapters,
                                   .format = format_,
                                   .header = std::move(header),
                                   .columns = std::move(columns),
                                   .output = output_row(),
                                   .output_delimiter = output_delimiter(),
                                   .spreads_objects = output_format_.packing == consumer::PackedFormat::parquet ||
                                                      output_format_.rows == consumer::RecordFormat::csv});
    if (output_row() == consumer::OutputRow::results) format_.columns = made.table.columns_needed();
    if (output_format_.packing != consumer::PackedFormat::parquet) {
        const consumer::FileFormat output = appended_format();
        // Earlier versions wrote CSV under any name.
        if (is_csv() && output.records == consumer::RecordFormat::lines) made.identity.push_back({"output", "jsonl"});
        if (output_delimiter() && *output_delimiter() != format_.delimiter)
            made.identity.push_back({"output", output.delimiter == '\t' ? "tsv" : "csv"});
    }
    std::cerr << made.note;
    return made;
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
        identity.insert(identity.begin(), {{"input", topic_},
                                           {"input size", fmt::format("{} bytes", summary_->content.bytes)},
                                           {"input content", summary_->content.hash}});
    }
    return identity;
}

std::unique_ptr<consumer::FileSource> RunCommand::make_source(const consumer::Table* table, consumer::RecordSet done) const {
    return std::make_unique<consumer::FileSource>(consumer::FileSourceOptions{
        .file = input_, .topic = topic_, .format = format_, .table = table, .done = std::move(done), .chosen = chosen_, .total = jobs()});
}

// nullopt: standard input.
std::optional<std::int64_t> RunCommand::jobs() const {
    if (!summary_) return std::nullopt;
    return sample_ > 0 ? std::min(sample_, summary_->records) : summary_->records;
}

ExitCode RunCommand::run() {
    SignalWatcher signals;
    std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond the file size limit fails and is reported, as on a full disk
    const Settings settings = configuration_.load();
    check_flags();
    format_ = format_of_input(input_, table_flags_.is_table(), table_flags_.format());
    if (is_csv() && consumer::is_standard_input(input_)) {
        throw UsageError("a CSV table comes from a file, because its header is read twice: save it to a file first");
    }
    output_format_ = format_of_output(output_, table_flags_.is_table(), format_.records);
    written_ = file_behind(output_);
    check_names(settings);
    topic_ = consumer::is_standard_input(input_) ? "stdin" : std::filesystem::path(input_).filename().string();
    const engine::ModelConfig config = check_folders(settings);
    const engine::ModelTexts texts(settings.model);
    const AdapterFolders adapters(settings.adapters, base_name_of(settings), config, texts);
    const std::optional<TableFlags::Made> made = make_table(settings, config, adapters);
    const consumer::Table* const rows = made ? &made->table : nullptr;

    // The slow part, after all mistakes in the call were reported.
    if (!consumer::is_standard_input(input_)) summary_ = consumer::summarize_file(input_, format_);
    if (output_row() == consumer::OutputRow::results) consumer::check_parquet(input_);
    if (sample_ > 0) chosen_ = consumer::spread_sample(input_, format_, sample_, summary_->records);
    EngineSetup setup(settings, texts);
    if (made) {
        if (const auto error = made->table.error_of_limits(made->model, setup.preparer()))
            throw UsageError("every row would fail: " + *error);
    }
    std::cerr << setup.describe();
    consumer::RunIdentity identity = identity_of(setup, settings);
    if (made) identity.insert(identity.end(), made->identity.begin(), made->identity.end());
    if (dry_run_) {
        const auto source = make_source(rows, {});
        return run_dry(*source, adapters, setup, settings);
    }
    RunOutput output =
        open_run_output({.output = written_,
                         .jobs = jobs(),
                         .identity = std::move(identity),
                         .format = appended_format(),
                         .packing = packed_output(rows),
                         .overwrite = overwrite_,
                         .retried = retried_,
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
    if (output.retried > 0) std::cerr << fmt::format("running {} again\n", show_count(output.retried, retried_.cut ? "job" : "failed job"));
    if (done_before > 0) {
        std::cerr << fmt::format("resuming: {} of {} jobs are already in {}\n", show_count(done_before), show_count(summary_->records),
                                 output_);
    }
    const auto source = make_source(table, std::exchange(output.done, {}));
    RunProgress progress(source->backlog(), done_before);
    if (!output.rows) {
        progress.finish();
        return sum_up(progress, output, source->empty_cells(), done_before, false);
    }
    consumer::FileSink sink({.file = *output.rows, .begin_bytes = output.begin_bytes, .table = table},
                            output.journal ? &*output.journal : nullptr);
    const NoCancels no_cancels;
    consumer::Pipeline pipeline({.source = *source,
                                 .sink = sink,
                                 .adapters = adapters,
                                 .cancels = no_cancels,
                                 .preparer = setup.preparer(),
                                 .engine = setup.engine(),
                                 .reply = setup.reply(),
                                 .observer = progress},
                                pipeline_options(settings, setup.engine(), "run"));
    bool stopped = false;
    try {
        {
            const SignalWatcher::Armed armed(signals, [&] {
                std::cerr << fmt::format("\nstopping: finishing the running jobs ({}), {}\n", show_count(progress.running(), "request"),
                                         summary_ ? "the others are left for later (interrupt again to stop at once; nothing is lost)"
                                                  : "the others have no result (interrupt again to stop at once)");
                pipeline.request_stop();
            });
            pipeline.run();
            stopped = signals.has_stopped();
        }
        if (output.journal) output.journal->end();
        if (output.packs && !stopped) pack(*output.packs);
    } catch (const std::exception& error) {
        if (!can_resume(output)) throw;
        throw std::runtime_error(
            fmt::format("{}\nno result is lost; after fixing this, resume with:\n  {}", error.what(), resume_command()));
    }
    progress.finish();
    return sum_up(progress, output, source->empty_cells(), done_before, stopped);
}

void RunCommand::pack(const consumer::PackedOutput& output) const {
    std::cerr << fmt::format("writing {}\n", output_);
    // Its rows are copied beside the results.
    if (output.parquet.input && consumer::content_of(input_).hash != summary_->content.hash)
        throw std::runtime_error(fmt::format("{} was changed during the run: put back what it was", input_));
    consumer::pack_output(output);
}

ExitCode RunCommand::sum_up(const RunProgress& progress, const RunOutput& output, const consumer::EmptyCells& empty_cells,
                            std::int64_t done_before, bool stopped) const {
    const ModelTally& total = progress.tally().total();
    std::cerr << progress.tally().table(progress.seconds()) << progress.tally().errors() << show(empty_cells);
    const std::int64_t jobs = total.jobs + done_before;
    const std::int64_t failed = total.failed + output.failed_before;
    const std::int64_t cut = total.cut + output.cut_before;
    if (done_before > 0) {
        std::cerr << fmt::format("with earlier runs: {}, {} ok, {} failed\n", show_count(jobs, "job"), show_count(jobs - failed),
                                 show_count(failed));
    }
    if (json_) {
        schema::Json json = progress.tally().json(progress.seconds());
        json.set("failed_before", output.failed_before);
        json.set("rows_with_empty_cells", empty_cells.rows);
        json.set("in_output", schema::Json::object({{"jobs", jobs}, {"ok", jobs - failed}, {"failed", failed}, {"cut", cut}}));
        json.set("stopped", stopped);
        std::cout << json.dump() << '\n';
    }
    if (stopped) {
        std::cerr << fmt::format("stopped after {} in {}", show_count(total.jobs, "job"),
                                 show_duration(std::chrono::milliseconds(static_cast<std::int64_t>(progress.seconds() * 1000.0))));
        if (output.packs)
            std::cerr << fmt::format("; {} is written when all are done, until then {} has the results", output_, output.rows->string());
        std::cerr << (can_resume(output) ? "; resume with:\n  " + resume_command() + "\n"
                                         : "; it cannot be resumed without an input file\n");
        return ExitCode::failed;
    }
    std::cerr << fmt::format("{} in {}: {}\n", show_count(total.jobs, "job"),
                             show_duration(std::chrono::milliseconds(static_cast<std::int64_t>(progress.seconds() * 1000.0))), output_);
    if (cut > 0) {
        std::cerr << fmt::format("{} ended at max_tokens or at the context's end, so the answers may not be whole.",
                                 show_count(cut, "job"));
        if (table_flags_.is_table() && can_resume(output)) {
            std::cerr << " To run only these rows again, repeat the command with --retry-cut and a larger --max-tokens.";
        }
        std::cerr << '\n';
    }
    if (failed == 0) return ExitCode::done;
    std::cerr << show_count(failed, "job") << " failed; the results say why.";
    if (can_resume(output)) {
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
