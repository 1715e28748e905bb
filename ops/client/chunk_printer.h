// Streamed chunks as text. Used by `lorry tail`. Pure but for the stream it writes to; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "schema/json.h"

namespace lorry::ops {

// A record of the chunks topic.
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

// The text of a whole result, for jobs that did not stream: what its first choice says, or the label of /classify; empty for others.
std::string text_of_result(const schema::Json& line);

// What a terminal may show: text without control characters other than line ends and tabs, which could move its cursor or worse.
std::string printable(std::string_view text);

// Puts together the texts of many jobs. A job that is run again starts over: only its newest attempt counts.
class ChunkPrinter {
public:
    // live: the text of this job's first choice is written as it comes; all else line by line, each with the job's id before it.
    ChunkPrinter(std::ostream& out, std::string live_job_id, bool safe);

    enum class Taken { text, restarted, old };
    // job_id: the record's key.
    Taken take(const std::string& job_id, const ChunkText& chunk);
    // The job has ended: writes what is left of it. False: nothing of it ever came.
    bool end(const std::string& job_id);

private:
    struct Job {
        std::int64_t attempt = 0;
        std::int64_t next_seq = 0;
        std::map<std::int64_t, std::string> open_lines;  // by choice: what is not written yet
    };
    void write_lines(const std::string& job_id, std::int64_t choice, std::string& text, bool all);

    std::ostream& out_;
    const std::string live_job_id_;
    const bool safe_;
    std::map<std::string, Job> jobs_;
    bool live_line_open_ = false;
};

}  // namespace lorry::ops
