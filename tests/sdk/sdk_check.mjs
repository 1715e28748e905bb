// Runs OpenAI's library for Node against a server: `node sdk_check.mjs URL NODE_MODULES`. sdk_check.py calls it.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [url, modules] = process.argv.slice(2);
const OpenAI = createRequire(`${modules}/`)("openai").default;
const client = new OpenAI({ baseURL: url, apiKey: "any", maxRetries: 0 });
const messages = [{ role: "user", content: "A Perl module for reading CSV files" }];
const asked = { model: "section", messages, max_tokens: 8, temperature: 0 };

const answer = await client.chat.completions.create(asked);
const text = answer.choices[0].message.content;
assert.ok(text.length > 0);
assert.ok(answer._request_id.startsWith("call-"));

let streamed = "";
let usage = null;
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } })) {
    streamed += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
}
assert.equal(streamed, text);
assert.deepEqual(usage, answer.usage);

const schema = { type: "object", properties: { is_library: { type: "boolean" } }, required: ["is_library"], additionalProperties: false };
const format = { type: "json_schema", json_schema: { name: "verdict", strict: true, schema } };
const parsed = await client.chat.completions.parse({ model: "base", messages, response_format: format, max_tokens: 60 });
assert.equal(typeof JSON.parse(parsed.choices[0].message.content).is_library, "boolean");

const completion = await client.completions.create({ model: "base", prompt: "Package:", max_tokens: 3 });
assert.equal(completion.usage.completion_tokens, 3);

const names = [];
for await (const model of client.models.list()) names.push(model.id);
assert.ok(names.includes("section"), names);

await assert.rejects(client.chat.completions.create({ ...asked, model: "nobody" }), OpenAI.NotFoundError);
await assert.rejects(client.chat.completions.create({ ...asked, temperature: "warm" }), OpenAI.BadRequestError);

// A stream that its reader leaves.
const stream = await client.completions.create({ model: "base", prompt: "Package:", max_tokens: 900, stream: true });
for await (const _ of stream) break;
console.log("node: all well");
