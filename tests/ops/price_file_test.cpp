// The file of prices: what it says, and where it is wrong.
#include "ops/price_file.h"

#include <gmock/gmock.h>

#include "ops/command.h"
#include "tests/support/temp_folder.h"

namespace lorry::ops {
namespace {

using ::testing::HasSubstr;

class PriceFile : public ::testing::Test {
protected:
    schema::Prices read(const std::string& text) {
        std::ofstream(folder_ / "prices.toml") << text;
        return read_prices(folder_ / "prices.toml");
    }
    std::string error(const std::string& text) {
        try {
            read(text);
        } catch (const UsageError& error) {
            return error.what();
        }
        return "no error";
    }

    tests::TempFolder folder_;
};

TEST_F(PriceFile, HasACurrencyAndPricesOfModels) {
    const schema::Prices prices = read(R"(
currency = "EUR"
[models.base]
prompt = 0.1
completion = 2
cached = 0.05
[models."größe-1.5"]
prompt = 1
completion = 1
[others]
prompt = 9
completion = 9.5
)");
    EXPECT_EQ(prices.currency, "EUR");
    EXPECT_EQ(prices.models.at("base").prompt, 0.1);
    EXPECT_EQ(prices.models.at("base").completion, 2.0);
    EXPECT_EQ(prices.models.at("base").cached, 0.05);
    EXPECT_FALSE(prices.models.at("größe-1.5").cached);
    EXPECT_EQ(prices.others->completion, 9.5);
    EXPECT_FALSE(prices_of(Settings()));
}

TEST_F(PriceFile, EachMistakeIsNamedWithItsLine) {
    EXPECT_THAT(error("currency = 1\n"), HasSubstr("prices.toml, line 1: currency must be a string"));
    EXPECT_THAT(error("\n[model.base]\nprompt = 1\n"), HasSubstr("unknown key 'model'; allowed are currency, [models.NAME] and [others]"));
    EXPECT_THAT(error("[models.base]\nprompt = -1\ncompletion = 1\n"), HasSubstr("line 2: models.base.prompt must be the price"));
    EXPECT_THAT(error("[models.base]\nprompt = nan\ncompletion = 1\n"), HasSubstr("a number from 0"));
    EXPECT_THAT(error("[models.base]\nprompt = \"1\"\ncompletion = 1\n"), HasSubstr("a number from 0"));
    EXPECT_THAT(error("[models.base]\nprompt = 1\n"), HasSubstr("[models.base] needs prompt and completion"));
    EXPECT_THAT(error("[others]\nprompt = 1\ncompletion = 1\noutput = 1\n"), HasSubstr("line 4: unknown key 'output' in [others]"));
    EXPECT_THAT(error("models.base = 1\n"), HasSubstr("models.base must be a table"));
    EXPECT_THAT(error("[models.base\n"), HasSubstr("prices.toml, line 1: "));
    EXPECT_THAT(error("currency = \"EUR\"\n"), HasSubstr("there are no prices"));
    EXPECT_THROW(read_prices(folder_ / "missing.toml"), UsageError);
}

}  // namespace
}  // namespace lorry::ops
