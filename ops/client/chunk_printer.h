// Parses streamed chunks and prints their text. Used by `lorry tail`. Pure except for the stream it writes to; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "schema/json.h"

namespace lorry::ops {

// The parts of a chunks record that are printed.
struct ChunkText {
    std::string custom_id;
    std::int64_t attempt = 0;
    std::int64_t seq = 0;
    struct Choice {
        std::int64_t index = 0;
        std::string text;
        bool finished = false;
    };
    std::vector<Choice> choices;
};
Expected<ChunkText, std::string> parse_chunk(std::string_view value);

// The text of a complete result, for jobs that did not stream: its first choice, or the label of /classify; empty for other results.
std::string text_of_result(const schema::Json& line);

// Assembles and prints the texts of many jobs. If a job is run again, its text starts over: only the newest attempt counts.
class ChunkPrinter {
public:
    // `live_job_id`: the first choice of this job is written as it arrives; all other text line by line, each line prefixed with the job's
    // id.
    ChunkPrinter(std::ostream& out, std::string live_job_id);

    enum class Taken { text, restarted, old };
    // Takes a chunk of the job whose id is the record's key.
    Taken take(const std::string& job_id, const ChunkText& chunk);
    // Call when the job has ended: writes the rest of its text. Returns false if none of it ever arrived.
    bool end(const std::string& job_id);

private:
    struct Job {
        std::int64_t attempt = 0;
        std::int64_t next_seq = 0;
        std::map<std::int64_t, std::string> open_lines;  // by choice: text not written yet
    };
    void write_lines(const std::string& job_id, std::int64_t choice, std::string& text, bool all);

    std::ostream& out_;
    const std::string live_job_id_;
    std::map<std::string, Job> jobs_;
    bool live_line_open_ = false;
};

}  // namespace lorry::ops
