// `lorry usage`: which days, tenants and columns it shows, as JSON, CSV and a table, and what it refuses.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "schema/json.h"
#include "schema/store/store.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace lorry::ops {
namespace {

using schema::Json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class UsageCommand : public ::testing::Test {
protected:
    static constexpr std::chrono::sys_days first = std::chrono::year(2026) / 11 / 1;

    UsageCommand() {
        schema::Store store = schema::Store::open(ledger(), schema::Store::Mode::writer);
        schema::StoreUpdate update;
        for (const auto& [day, tenant, tokens] : {std::tuple(0, "search", 10), std::tuple(1, "search", 20), std::tuple(2, "mails", 40)}) {
            const schema::Timestamp time = first + std::chrono::days(day) + std::chrono::hours(5);
            schema::Status status{.state = schema::JobState::completed, .usage = {.prompt_tokens = tokens, .completion_tokens = 1}};
            status.run = {.job_id = fmt::format("job-{}", day),
                          .tenant = tenant,
                          .key = "k1",
                          .model = "section",
                          .adapter = "hash",
                          .worker = "w",
                          .source = {.topic = "lorry.calls", .partition = 0, .offset = day},
                          .attempt = 1,
                          .submitted = time,
                          .started = time,
                          .finished = time};
            update.statuses.push_back(std::move(status));
        }
        store.apply(update);
    }

    std::string ledger() const { return (folder_.path() / "ledger.sqlite").string(); }
    tests::ProgramResult usage(std::vector<std::string> flags) const {
        std::vector<std::string> command{LORRY_PROGRAM, "usage", "--ledger", ledger()};
        command.insert(command.end(), flags.begin(), flags.end());
        return tests::run_program_of(std::move(command));
    }
    // "day tenant prompt_tokens" of each row.
    std::string rows(std::vector<std::string> flags) const {
        flags.insert(flags.end(), {"--json", "--by", "day,tenant"});
        const tests::ProgramResult shown = usage(std::move(flags));
        EXPECT_EQ(shown.exit_code, 0) << shown.err;
        const auto list = Json::parse(shown.out);
        EXPECT_TRUE(list && list->find("object") && *list->find("object")->as_string() == "list") << shown.out;
        std::string text;
        for (const Json& row : *list->find("data")->as_array()) {
            text += fmt::format("{} {} {};", *row.find("day")->as_string(), *row.find("tenant")->as_string(),
                                row.find("prompt_tokens")->dump());
        }
        return text;
    }

private:
    const tests::TempFolder folder_;
};

TEST_F(UsageCommand, ShowsTheDaysAndTheTenantThatAreAskedFor) {
    EXPECT_EQ(rows({}), "2026-11-01 search 10;2026-11-02 search 20;2026-11-03 mails 40;");
    EXPECT_EQ(rows({"--since", "2026-11-02"}), "2026-11-02 search 20;2026-11-03 mails 40;");
    EXPECT_EQ(rows({"--until", "2026-11-02"}), "2026-11-01 search 10;2026-11-02 search 20;");
    EXPECT_EQ(rows({"--since", "2026-11-02", "--until", "2026-11-02"}), "2026-11-02 search 20;");
    EXPECT_EQ(rows({"--tenant", "mails"}), "2026-11-03 mails 40;");
    EXPECT_EQ(rows({"--since", "2026-11-04"}), "");
}

TEST_F(UsageCommand, SumsUpAsJsonAsCsvAndAsATable) {
    EXPECT_EQ(usage({"--json", "--by", "tenant", "--since", "2026-11-01", "--until", "2026-11-02"}).out,
              R"({"object":"list","data":[{"tenant":"search","jobs":2,"prompt_tokens":30,"completion_tokens":2,"cached_tokens":0}]})"
              "\n");
    EXPECT_EQ(usage({"--csv", "--by", "tenant"}).out,
              "tenant,jobs,prompt_tokens,completion_tokens,cached_tokens\r\nmails,1,40,1,0\r\nsearch,2,30,2,0\r\n");
    const tests::ProgramResult table = usage({"--since", "2026-11-03"});
    EXPECT_THAT(table.out, AllOf(HasSubstr("mails"), HasSubstr("section"), Not(HasSubstr("search"))));
    const tests::ProgramResult none = usage({"--since", "2026-11-04"});
    EXPECT_THAT(none.err, HasSubstr("has no usage of that kind"));
    EXPECT_EQ(none.exit_code, 0);
}

TEST_F(UsageCommand, RefusesWhatIsNoDayColumnOrSingleFormat) {
    for (const auto& [flags, wanted] : std::vector<std::pair<std::vector<std::string>, const char*>>{
             {{"--since", "yesterday"}, "--since is 'yesterday'; allowed is a day such as 2026-11-01"},
             {{"--until", "2026-02-30"}, "--until is '2026-02-30'"},
             {{"--by", "colour"}, "--by: "},
             {{"--tenant", ""}, "--tenant"},
             {{"--json", "--csv"}, "excludes"}}) {
        const tests::ProgramResult refused = usage(flags);
        EXPECT_EQ(refused.exit_code, 2) << refused.err;
        EXPECT_THAT(refused.err, HasSubstr(wanted));
        EXPECT_EQ(refused.out, "");
    }
}

}  // namespace
}  // namespace lorry::ops
