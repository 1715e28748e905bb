// Runs files and batches of OpenAI's library for Node: `node batches_check.mjs NODE_MODULES URL KEY`. batches_check.py calls it.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [modules, url, apiKey] = process.argv.slice(2);
const library = createRequire(`${modules}/`)("openai");
const client = new library.default({ baseURL: url, apiKey, maxRetries: 0 });
const body = { model: "base", prompt: "Package:", max_tokens: 2 };
const line = JSON.stringify({ custom_id: "one", method: "POST", url: "/v1/completions", body });

async function idsOf(pages) {
    const ids = [];
    for await (const each of pages) ids.push(each.id);
    return ids;
}

async function ended(batch) {
    while (["validating", "in_progress", "finalizing", "cancelling"].includes(batch.status)) {
        await new Promise((resolve) => setTimeout(resolve, 200));
        batch = await client.batches.retrieve(batch.id);
    }
    return batch;
}

const file = await client.files.create({ file: await library.toFile(Buffer.from(`${line}\n`), "jobs.jsonl"), purpose: "batch" });
assert.equal(file.bytes, line.length + 1);
assert.equal((await client.files.retrieve(file.id)).filename, "jobs.jsonl");
assert.equal(await (await client.files.content(file.id)).text(), `${line}\n`);
assert.ok((await idsOf(client.files.list({ limit: 1 }))).includes(file.id));

const asked = { input_file_id: file.id, endpoint: "/v1/completions", completion_window: "24h" };
const batch = await ended(await client.batches.create(asked));
assert.equal(batch.status, "completed");
assert.deepEqual(batch.request_counts, { total: 1, completed: 1, failed: 0 });
assert.ok((await idsOf(client.batches.list({ limit: 1 }))).includes(batch.id));
const row = JSON.parse(await (await client.files.content(batch.output_file_id)).text());
assert.equal(row.custom_id, "one");
assert.equal(row.response.status_code, 200);
await assert.rejects(client.batches.cancel(batch.id), library.default.ConflictError);

// A batch that is cancelled at once ends as cancelled, or its one line was quicker.
const cancelled = await client.batches.cancel((await client.batches.create(asked)).id);
assert.ok(["cancelling", "cancelled"].includes(cancelled.status), cancelled.status);
assert.ok(["cancelled", "completed"].includes((await ended(cancelled)).status));

assert.equal((await client.files.delete(file.id)).deleted, true);
await assert.rejects(client.files.retrieve(file.id), library.default.NotFoundError);
console.log("node: batches: all well");
