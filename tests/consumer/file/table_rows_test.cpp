// Tables: reading and writing CSV, templates, jobs made from rows, results beside the columns.
#include "consumer/file/table_rows.h"
#include "consumer/file/answer_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include <fmt/format.h>

#include "consumer/file/listed.h"
#include "consumer/file/table_csv.h"
#include "tests/support/labels.h"

namespace lorry::consumer {
namespace {

using schema::Json;

std::string fields_of(std::string_view record) {
    const auto fields = parse_csv_record(record);
    if (!fields) return "error: " + fields.error();
    std::string text;
    for (const std::string& field : *fields) text += "[" + field + "]";
    return text;
}

TEST(Csv, ReadsFieldsAsRfc4180WritesThem) {
    EXPECT_EQ(fields_of("a,b,c"), "[a][b][c]");
    EXPECT_EQ(fields_of(",,"), "[][][]");
    EXPECT_EQ(fields_of(R"("a,b","say ""hi""","two
lines")"),
              "[a,b][say \"hi\"][two\nlines]");
    EXPECT_EQ(fields_of(R"("",x)"), "[][x]");
    EXPECT_EQ(fields_of(R"(5" pipe,x)"), "[5\" pipe][x]");
    EXPECT_EQ(fields_of(R"(x,"open)"), "error: field 2 begins with a quote that is never closed");
    EXPECT_EQ(fields_of(R"("a"b,c)"), "error: field 1 continues after its closing quote; double a quote that belongs to the text");
}

TEST(Csv, WritesWhatItReadsBackEqual) {
    for (const std::vector<std::string>& fields :
         std::vector<std::vector<std::string>>{{"a", "b"}, {""}, {"", ""}, {"a,b", "\"", "line\nend", "\r", " spaces "}, {"日本", "é"}}) {
        EXPECT_EQ(parse_csv_record(encode_csv_record(fields)).value(), fields) << encode_csv_record(fields);
    }
}

std::string filled(const std::string& source) {
    try {
        const auto text = RowTemplate(source).fill([](const std::string& column) {
            static const std::string name = "Ada";
            return column == "name" ? &name : nullptr;
        });
        return text ? *text : "error: " + text.error();
    } catch (const InputError& error) {
        return std::string("refused: ") + error.what();
    }
}

TEST(RowTemplate, PutsFieldsWhereTheirColumnsAreNamed) {
    EXPECT_EQ(filled("Dear {{ name }}, {{name}}!"), "Dear Ada, Ada!");
    EXPECT_EQ(filled("no placeholder { } }}"), "no placeholder { } }}");
    EXPECT_EQ(filled("{{{{ name }}"), "{{ name }}");
    EXPECT_EQ(filled("{{ age }}"), "error: the row has no column 'age', which the template asks for");
    EXPECT_EQ(filled("a\n{{ name"), "refused: the template opens a placeholder in line 2 and never closes it: write {{ column }}");
    EXPECT_EQ(filled("{{ }}"), "refused: the template has an empty placeholder in line 1: name a column");
}

TableOptions options_of(bool csv) {
    TableOptions options;
    options.csv = csv;
    options.id_column = "id";
    options.prompt_template = "Sort: {{ text }}";
    return options;
}

TEST(Table, TakesNoTemplateThatAsksTheSameOfAllRows) {
    TableOptions options = options_of(true);
    options.prompt_template = "{% if text %}{ text }{% endif %}";
    EXPECT_THAT([&] { Table(options, "id,text"); }, testing::ThrowsMessage<InputError>(testing::HasSubstr("uses no column")));
}

Delivery read(const Table& table, const std::string& row) {
    Delivery delivery;
    table.read_row(row, delivery);
    return delivery;
}

TEST(Table, MakesAJobOfACsvRow) {
    TableOptions options = options_of(true);
    options.system = "Be brief.";
    options.max_tokens = 8;
    options.model = "sorter";
    options.model_column = "adapter";
    const Table table(options, "id,adapter,text");
    EXPECT_EQ(*read(table, R"(7,,"a ""b""")").record.value,
              R"({"custom_id":"7","method":"POST","url":"/v1/chat/completions","body":{"model":"sorter","messages":[)"
              R"({"role":"system","content":"Be brief."},{"role":"user","content":"Sort: a \"b\""}],"temperature":0.0,"max_tokens":8}})");
    EXPECT_NE(read(table, "7,other,x").record.value->find(R"("model":"other")"), std::string::npos);
}

TEST(Table, MakesAClassificationOfAJsonRowWhenThereAreChoices) {
    TableOptions options = options_of(false);
    options.task = RowTask::choose;
    options.choices = {"spam", "ham"};
    options.chat = false;
    const Table table(options, "");
    const Delivery delivery = read(table, R"({"id":7,"text":"x"})");
    EXPECT_EQ(*delivery.record.value,
              R"({"custom_id":"7","method":"POST","url":"/classify","body":{"model":"base","input":"Sort: x","choices":["spam","ham"]}})");
    EXPECT_TRUE(schema::parse_job(delivery.record, {}));
}

// Pins: two ids of 64 bits became one, and both rows were written with digits that were not theirs.
TEST(Table, NumbersOfAJsonRowKeepTheirDigits) {
    const Table table(options_of(false), "");
    const std::string row = R"({"id":13835058055282163714,"text":0.10,"big":123456789012345678901234567890})";
    const Delivery delivery = read(table, row);
    EXPECT_THAT(*delivery.record.value, testing::HasSubstr(R"("custom_id":"13835058055282163714")"));
    EXPECT_THAT(*delivery.record.value, testing::HasSubstr("Sort: 0.10"));
    const schema::JobError odd{.code = schema::ErrorCode::invalid_row, .param = "", .message = "odd"};
    EXPECT_EQ(table.output_row(row, schema::DeadLetter{.error = odd}),
              row.substr(0, row.size() - 1) + R"(,"result":null,"error":"invalid_row: line 1: odd"})" + "\n");
}

TEST(Table, RefusesARowItCannotUseAndSaysWhy) {
    const Table csv(options_of(true), "id,text");
    const auto reason = [](const Table& table, const std::string& row) { return read(table, row).refusal.value().message; };
    EXPECT_EQ(reason(csv, "1"),
              "the row has 1 fields, the header 2; add a comma for each missing field (a field with a line break in it must be "
              "quoted)");
    // Pins: the text after the last column appeared in no output; then a row repeated all of it, 110 KB.
    EXPECT_EQ(reason(csv, "1,a,b,\"c,\xFF\""),
              "the row has 4 fields, the header 2; after the last column it has: b,\"c,\xEF\xBF\xBD\" "
              "(a field with a comma in it must be quoted)");
    EXPECT_THAT(reason(csv, "1,a," + std::string(100'000, 'b')),
                testing::HasSubstr("it has: " + std::string(60, 'b') + "… (a field with a comma"));
    EXPECT_THAT(reason(Table(options_of(false), ""), R"({"id":"1",")" + std::string(100'000, 'c') + R"(":1})"),
                testing::EndsWith("; it has: id, " + std::string(60, 'c') + "…"));
    // Pins: the end of a run named the first line only, and said nothing of those that a stray quote took with it.
    EXPECT_EQ(
        reason(csv, "1,\"open\n2,b\n3,\"c"),
        "field 2 continues after its closing quote; double a quote that belongs to the text; the row takes 3 lines, so a quote may be "
        "missing");
    EXPECT_EQ(reason(csv, ",a"), "the row's 'id', which names it, is empty: fill that column");
    EXPECT_EQ(reason(csv, "1,\xFF"),
              "line 1 is not UTF-8: save the table in that encoding, or name its own with --encoding (windows-1252, latin-1)");
    const Table jsonl(options_of(false), "");
    EXPECT_EQ(reason(jsonl, R"({"text":"a"})"), "the row's 'id', which names it, is missing: fill that column");
    EXPECT_EQ(reason(jsonl, R"({"id":null,"text":"a"})"), "the row's 'id', which names it, is empty: fill that column");
    EXPECT_EQ(reason(jsonl, R"({"id":"1","text":"a","error":"mine"})"), "the row already has a member 'error': give --result-prefix");
    EXPECT_EQ(reason(jsonl, "[1]"), "the row is a JSON array; a row is an object");
    EXPECT_EQ(reason(jsonl, R"({"id":"1"})"), "the row has no column 'text', which the template asks for; it has: id");
    EXPECT_FALSE(read(csv, "1,good").refusal);
}

TEST(Table, RefusesColumnsThatAreNotThereOrThereTwice) {
    const auto message_of = [](const std::string& header) -> std::string {
        try {
            const Table table(options_of(true), header);
        } catch (const InputError& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_EQ(message_of("id,text"), "accepted");
    EXPECT_EQ(message_of("id,body"), "the template asks for the column 'text', which the table does not have; it has: id, body");
    EXPECT_EQ(message_of("text,no"), "--id names the column 'id', which the table does not have; it has: text, no");
    EXPECT_EQ(message_of("id,text,id"), "the table has two columns named 'id': rename one");
    const std::string wide(100'000, 'w');
    EXPECT_EQ(message_of("id,text," + wide + "," + wide), "the table has two columns named '" + wide.substr(0, 60) + "…': rename one");
    EXPECT_EQ(message_of("id,text,result"), "the table already has a column 'result': give --result-prefix");
}

const tests::Labelled placeholders_without_tsan{"Table.ManyPlaceholders*", {tests::Label::not_tsan}};

// Anything quadratic would run into the test's time limit here. Pins: 200,000 placeholders, or labels, took more than 30 s.
TEST(Table, ManyPlaceholdersColumnsAndNamesAreCheckedInTime) {
    constexpr int many = 200'000;
    std::string header = "id,text";
    std::string row = "7,x";
    std::string prompt;
    std::vector<std::string> names;
    for (int i = 0; i < many; ++i) {
        names.push_back(fmt::format("c{}", i));
        header += "," + names.back();
        row += ",v";
        prompt += fmt::format("{{{{ c{} }}}}\n", many - 1 - i);
    }
    TableOptions options = options_of(true);
    options.prompt_template = prompt;
    const Table table(options, header);
    EXPECT_EQ(read(table, row).refusal, std::nullopt);
    EXPECT_EQ(repeated(names), std::nullopt);
    names.push_back("c77");
    EXPECT_EQ(repeated(names), "c77");
}

TEST(Csv, FindsTheDelimiterOfAHeader) {
    EXPECT_EQ(delimiter_of("id,text"), ',');
    EXPECT_EQ(delimiter_of("id;text"), ';');
    EXPECT_EQ(delimiter_of("id\ttext"), '\t');
    EXPECT_EQ(delimiter_of("id|text"), '|');
    EXPECT_EQ(delimiter_of("id,a;b;c"), ',') << "commas come first";
    EXPECT_EQ(delimiter_of("\"a;b\""), ',') << "a quoted name is one column";
    EXPECT_EQ(delimiter_of("text"), ',');
}

TEST(Csv, WritesWithTheDelimiterThatItReads) {
    const std::vector<std::string> fields = {"a,b", "c;d", "\te"};
    EXPECT_EQ(encode_csv_record(fields, ';'), "a,b;\"c;d\";\te");
    for (const CsvDelimiter& delimiter : csv_delimiters()) {
        EXPECT_EQ(parse_csv_record(encode_csv_record(fields, delimiter.byte), delimiter.byte).value(), fields) << delimiter.name;
    }
}

TEST(Table, MakesOneJobForEachTask) {
    const auto body_of = [](RowTask task, const std::function<void(TableOptions&)>& set) {
        TableOptions options;
        options.task = task;
        options.text_column = "text";
        set(options);
        const Table table(std::move(options), "");
        const Delivery delivery = read(table, R"({"text":"a","other":"b"})");
        EXPECT_TRUE(schema::parse_job(delivery.record, {})) << *delivery.record.value;
        return *delivery.record.value;
    };
    const auto line = [](const std::string& url, const std::string& fields) {
        return fmt::format(R"({{"custom_id":"1","method":"POST","url":"{}","body":{{"model":"base",{}}}}})", url, fields);
    };
    EXPECT_EQ(body_of(RowTask::classify, [](TableOptions&) {}), line("/classify", R"("input":"a")"));
    EXPECT_EQ(body_of(RowTask::ner, [](TableOptions&) {}), line("/token_classify", R"("input":"a")"));
    EXPECT_EQ(body_of(RowTask::embed,
                      [](TableOptions& options) {
                          options.fields = {{"dimensions", 8}, {"truncate_prompt_tokens", -1}};
                      }),
              line("/v1/embeddings", R"("input":"a","dimensions":8,"truncate_prompt_tokens":-1)"));
    EXPECT_EQ(body_of(RowTask::score, [](TableOptions& options) { options.second_column = "other"; }),
              line("/score", R"("text_1":"a","text_2":"b")"));
    EXPECT_EQ(body_of(RowTask::zero_shot,
                      [](TableOptions& options) {
                          options.choices = {"x", "y"};
                          options.fields = {{"multi_label", true}};
                      }),
              line("/classify", R"("input":"a","choices":["x","y"],"multi_label":true)"));
}

TEST(Table, IdentifiesRowsByTheirLinesIfNoColumnDoes) {
    TableOptions options = options_of(true);
    options.id_column.clear();
    const Table table(std::move(options), "text");
    Delivery delivery;
    delivery.record.source.offset = 41;
    table.read_row("a", delivery);
    EXPECT_THAT(*delivery.record.value, testing::StartsWith(R"({"custom_id":"42",)"));
    Delivery bad;
    bad.record.source.offset = 41;
    table.read_row("a,b", bad);
    EXPECT_EQ(*bad.record.value, "{}") << "without an id it becomes a dead letter, which names its line";
    EXPECT_TRUE(bad.refusal);
}

// Pins: a regression's negative value was written as 0.
TEST(Table, WritesTheResultsOfEachTask) {
    const auto row_of_result = [](RowTask task, const char* entry) {
        TableOptions options;
        options.task = task;
        options.csv = true;
        options.delimiter = ';';
        options.text_column = "text";
        if (task == RowTask::score) options.second_column = "text";
        schema::Completion completion;
        completion.body = schema::Json::object({{"data", schema::Json::array({schema::Json::parse(entry).value()})}});
        const Table table(std::move(options), "text");
        return table.output_header() + table.output_row("a", completion);
    };
    EXPECT_EQ(row_of_result(RowTask::classify, R"({"label":"up","probs":[-1.5]})"), "text;label;probability;error\na;up;-1.500000;\n");
    EXPECT_EQ(row_of_result(RowTask::embed, R"({"embedding":[0.5,-0.25]})"), "text;embedding;error\na;[0.5,-0.25];\n");
    EXPECT_EQ(row_of_result(RowTask::score, R"({"score":0.125})"), "text;score;error\na;0.125;\n");
    EXPECT_EQ(row_of_result(RowTask::ner, R"({"entities":[{"word":"a;b"}]})"),
              "text;entities;error\na;\"[{\"\"word\"\":\"\"a;b\"\"}]\";\n");
}

TEST(RowTemplate, NamesEachColumnOnceInTheOrderOfTheText) {
    EXPECT_THAT(RowTemplate("{{ b }}{{ a }}{{b}}").columns(), testing::ElementsAre("b", "a"));
}

schema::Completion completed(const char* body) {
    schema::Completion completion;
    completion.body = schema::Json::parse(body).value();
    return completion;
}

TEST(Table, PutsResultsBesideTheColumns) {
    const Table csv(options_of(true), "id,text");
    EXPECT_EQ(csv.output_header(), "id,text,result,error\n");
    EXPECT_EQ(csv.output_row("1,\"a,b\"", completed(R"({"choices":[{"message":{"content":"two\nlines"}}]})")),
              "1,\"a,b\",\"two\nlines\",\n");
    schema::Completion failed = completed(R"({"error":{"code":"model_not_found","message":"no"}})");
    failed.state = schema::JobState::failed;
    const schema::JobError odd{.code = schema::ErrorCode::invalid_row, .param = {}, .message = "odd"};
    EXPECT_EQ(csv.output_row("1,a", failed), "1,a,,model_not_found: no\n");
    const schema::DeadLetter third_line{.source = {.topic = "in.csv", .partition = 0, .offset = 2}, .error = odd};
    EXPECT_EQ(csv.output_row("1,\"open\n2,b\n3,\"c", third_line), "\"1,\"\"open\",,,invalid_row: lines 3 to 5: odd\n");
    EXPECT_EQ(csv.output_row("1,a,b,c", schema::DeadLetter{.error = odd}), "1,a,,invalid_row: line 1: odd\n");

    TableOptions options = options_of(false);
    options.task = RowTask::choose;
    options.choices = {"spam", "ham"};
    options.result_prefix = "lorry_";
    const Table jsonl(options, "");
    EXPECT_EQ(jsonl.output_header(), "");
    EXPECT_EQ(jsonl.output_row(R"({"id":1,"text":"x"})", completed(R"({"data":[{"label":"ham","probs":[0.25,0.75]}]})")),
              R"({"id":1,"text":"x","lorry_label":"ham","lorry_probability":0.75,"lorry_error":null})"
              "\n");
    // Pins: a member of the row that was named like one of the result was lost.
    EXPECT_EQ(jsonl.output_row(R"({"id":1,"lorry_label":"gold"})", schema::DeadLetter{.error = odd}),
              R"({"row":"{\"id\":1,\"lorry_label\":\"gold\"}","lorry_label":null,"lorry_probability":null,)"
              R"("lorry_error":"invalid_row: line 1: odd"})"
              "\n");
    EXPECT_EQ(jsonl.output_row("not json", schema::DeadLetter{.error = odd}),
              R"({"row":"not json","lorry_label":null,"lorry_probability":null,"lorry_error":"invalid_row: line 1: odd"})"
              "\n");
}

TEST(Table, AColumnHasTheTypeThatTheSchemaLeavesItsProperty) {
    const Json root = Json::parse(R"({"$defs":{"count":{"type":"integer"},"again":{"$ref":"#/$defs/again"}}})").value();
    using enum engine::ParquetKind;
    for (const auto& [property, kind] :
         std::vector<std::pair<const char*, engine::ParquetKind>>{{R"({"type":"boolean"})", boolean},
                                                                  {R"({"type":"integer"})", integer},
                                                                  {R"({"type":"number"})", number},
                                                                  {R"({"type":["integer","null"]})", integer},
                                                                  {R"({"type":["integer","number"]})", number},
                                                                  {R"({"type":["integer","string"]})", text},
                                                                  {R"({"type":"array"})", text},
                                                                  {R"({"anyOf":[{"type":"boolean"},{"type":"null"}]})", boolean},
                                                                  {R"({"oneOf":[{"const":1},{"const":2.5}]})", number},
                                                                  {R"({"enum":[1,2,null]})", integer},
                                                                  {R"({"enum":[1,"two"]})", text},
                                                                  {R"({"enum":[true,false]})", boolean},
                                                                  {R"({"const":null})", text},
                                                                  {R"({"$ref":"#/$defs/count"})", integer},
                                                                  {R"({"$ref":"#/$defs/again"})", text},
                                                                  {R"({"$ref":"#/$defs/none"})", text},
                                                                  {R"({"allOf":[{"type":"integer"}]})", text},
                                                                  {"{}", text},
                                                                  {"true", text}}) {
        EXPECT_EQ(kind_of_property(Json::parse(property).value(), root), kind) << property;
    }
}

TEST(Table, AnswersThatMatchASchemaBecomeColumnsOrObjects) {
    const Json schema = Json::parse(R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},)"
                                    R"("tags":{"type":"array"}}})")
                            .value();
    const auto table = [&](bool csv, bool spreads, const Json& answer_schema) {
        TableOptions options = options_of(csv);
        options.answer_schema = answer_schema;
        options.spreads_objects = spreads;
        return Table(std::move(options), csv ? "id,text" : "");
    };
    const auto answer = [](const std::string& text, const std::string& finish) {
        return completed(
            (R"({"choices":[{"message":{"content":)" + Json(text).dump() + R"(},"finish_reason":")" + finish + "\"}]}").c_str());
    };
    const auto whole = answer(R"({"name": "Ada", "age": 36, "tags": ["a"]})", "stop");
    const auto cut = answer(R"({"name": "Ad)", "length");
    const Table csv = table(true, true, schema);
    EXPECT_EQ(csv.output_header(), "id,text,name,age,tags,result,error\n");
    EXPECT_EQ(csv.output_row("1,a", whole), "1,a,Ada,36,\"[\"\"a\"\"]\",,\n");
    EXPECT_THAT(csv.output_row("1,a", cut), testing::StartsWith("1,a,,,,\"{\"\"name\"\": \"\"Ad\",\"the answer reached --max-tokens"));
    EXPECT_EQ(csv.output_row("1,a", answer(R"({"age": null})", "stop")), "1,a,,,,,\n");
    const auto columns = csv.added_columns();
    EXPECT_EQ(columns[0].kind, engine::ParquetKind::text);
    EXPECT_EQ(columns[1].kind, engine::ParquetKind::integer);

    const Table lines = table(false, false, schema);
    EXPECT_EQ(lines.output_row(R"({"id":1,"text":"x"})", whole),
              R"({"id":1,"text":"x","result":{"name":"Ada","age":36,"tags":["a"]},"error":null})"
              "\n");
    EXPECT_THAT(lines.output_row(R"({"id":1,"text":"x"})", cut),
                testing::StartsWith(R"({"id":1,"text":"x","result":"{\"name\": \"Ad","error":"the answer reached --max-tokens)"));
    EXPECT_THAT(
        lines.output_row(R"({"id":1,"text":"x"})", answer(R"({"tags":)" + std::string(200, '[') + std::string(200, ']') + "}", "stop")),
        testing::HasSubstr("the answer is no object that can be read: nested deeper than 100 levels"));

    const auto refusal = [&](const char* text) {
        try {
            table(true, true, Json::parse(text).value());
            return std::string();
        } catch (const InputError& error) {
            return std::string(error.what());
        }
    };
    EXPECT_THAT(refusal("{}"), testing::HasSubstr("the schema has no 'properties'"));
    for (const char* others : {R"("additionalProperties":true)", R"("allOf":[])", R"("required":["a","b"])"}) {
        EXPECT_THAT(refusal((R"({"properties":{"a":{}},)" + std::string(others) + "}").c_str()),
                    testing::HasSubstr("lets an answer have members that no column holds"));
    }
    EXPECT_THAT(refusal(R"({"properties":{"error":{}}})"), testing::HasSubstr("the schema has a property 'error'"));
    EXPECT_THAT(refusal(R"({"properties":{"text":{}}})"), testing::HasSubstr("the table already has a column 'text'"));
}

}  // namespace
}  // namespace lorry::consumer
