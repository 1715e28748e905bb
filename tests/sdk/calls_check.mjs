// Runs OpenAI's library for Node against a server of the example's models: `node calls_check.mjs NODE_MODULES URL KEY KIND`, where KIND is
// generation or encoder. calls.py calls it.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [modules, url, apiKey, kind] = process.argv.slice(2);
const OpenAI = createRequire(`${modules}/`)("openai").default;
const client = new OpenAI({ baseURL: url, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "A Perl module for reading CSV files" }];

async function checkChats() {
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

    let parts = "";
    const helper = client.chat.completions.stream(asked).on("content", (part) => (parts += part));
    assert.equal(await helper.finalContent(), text);
    assert.equal(parts, text);

    const schema = { type: "object", properties: { is_library: { type: "boolean" } }, required: ["is_library"], additionalProperties: false };
    const format = { type: "json_schema", json_schema: { name: "verdict", strict: true, schema } };
    const parsed = await client.chat.completions.parse({ model: "base", messages, response_format: format, max_tokens: 60 });
    assert.equal(typeof JSON.parse(parsed.choices[0].message.content).is_library, "boolean");

    await assert.rejects(client.chat.completions.create({ ...asked, model: "nobody" }), OpenAI.NotFoundError);
    await assert.rejects(client.chat.completions.create({ ...asked, temperature: "warm" }), OpenAI.BadRequestError);
}

async function checkCompletions() {
    const asked = { model: "base", prompt: "Package:", max_tokens: 3, temperature: 0 };
    const completion = await client.completions.create(asked);
    assert.equal(completion.usage.completion_tokens, 3);
    let text = "";
    for await (const chunk of await client.completions.create({ ...asked, stream: true })) text += chunk.choices[0].text;
    assert.equal(text, completion.choices[0].text);
    // A stream that its reader leaves.
    const stream = await client.completions.create({ ...asked, max_tokens: 900, stream: true });
    for await (const _ of stream) break;
}

async function checkModels() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    assert.ok(names.includes("section"), names);
    assert.equal((await client.models.retrieve("section")).owned_by, "lorry");
    await assert.rejects(client.models.retrieve("nobody"), OpenAI.NotFoundError);
}

async function checkEmbeddings() {
    const answer = await client.embeddings.create({ model: "base", input: ["a library", "ein Buch"] });
    const plain = await client.embeddings.create({ model: "base", input: "a library", encoding_format: "float" });
    assert.equal(answer.data.length, 2);
    assert.ok(plain.data[0].embedding.length > 100);
    // The library asks for base64 and unpacks it.
    plain.data[0].embedding.forEach((value, i) => assert.ok(Math.abs(value - answer.data[0].embedding[i]) < 1e-6));
    assert.ok(answer.usage.total_tokens > 0);
}

const checks = { generation: [checkChats, checkCompletions, checkModels], encoder: [checkEmbeddings] }[kind];
for (const check of checks) await check();
console.log(`node: ${kind}: all well`);
