// The official OpenAI SDK for Node, unmodified, against a running gateway. Asserts, and prints what it did.
// Environment: as openai_sdk.py.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { delimiter } from "node:path";
import OpenAI from "openai";

const { REROUTER_BASE_URL: baseURL, REROUTER_KEY: apiKey, REROUTER_KEY_ID: keyId, REROUTER_RECORDED: files } = process.env;
const refusedKeys = JSON.parse(process.env.REROUTER_REFUSED_KEYS);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "Is anybody there?" }];

async function raises(kind, call) {
  try {
    await call();
  } catch (error) {
    assert.equal(error.constructor, kind, `${error} instead of ${kind.name}`);
    return error;
  }
  assert.fail(`no ${kind.name}`);
}

// Some providers write contents in parts, which the SDK passes on as they are.
const said = (content) => (typeof content === "string" ? content : content ? JSON.stringify(content) : "");

async function collect(stream) {
  let text = "";
  for await (const chunk of stream) text += said(chunk.choices?.[0]?.delta?.content);
  return text;
}

function recordedText({ stream, response }) {
  if (!stream) return said(JSON.parse(response).choices[0].message.content);
  const data = response.split(/\r?\n/).filter((line) => line.startsWith("data:") && line.slice(5).trim() !== "[DONE]");
  return data.flatMap((line) => JSON.parse(line.slice(5)).choices ?? []).map((choice) => said(choice.delta?.content)).join("");
}

async function mock() {
  const completion = await client.chat.completions.create({ model: "demo/echo", messages });
  assert.equal(completion.choices[0].message.content, "Is anybody there?");
  assert.match(completion._request_id, /^req_/);
  assert.equal(await collect(await client.chat.completions.create({ model: "auto", messages, stream: true })), "Is anybody there?");
  const { response } = await client.chat.completions.create({ model: "auto", messages }).withResponse();
  assert.equal(response.headers.get("x-rerouter-provider"), "demo");
  console.log("mock: a completion, a stream, a raw response");
}

const lines = files.split(delimiter).flatMap((file) => readFileSync(file, "utf8").split("\n").filter(Boolean));
const exchanges = (wanted) => lines.map((line) => JSON.parse(line)).filter(({ kind }) => kind === wanted);

async function responses() {
  const response = await client.responses.create({ model: "auto", input: "Is anybody there?" });
  assert.equal(response.output_text, "Is anybody there?");
  let text = "";
  for await (const event of await client.responses.create({ model: "auto", input: messages, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, "Is anybody there?");
  const { data } = await client.embeddings.create({ model: "auto", input: ["one", "two"], dimensions: 8 });
  assert.deepEqual(data.map(({ embedding }) => embedding.length), [8, 8]);
  const count = { plain: 0, streamed: 0, tools: 0 };
  for (const exchange of exchanges("responses")) {
    const request = { ...exchange.request, model: `rec/${exchange.request.model}` };
    if (exchange.stream) {
      const came = [];
      for await (const event of await client.responses.create(request)) came.push(event.type);
      const events = exchange.response.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      assert.deepEqual(came, events.map((line) => JSON.parse(line.slice(5)).type), exchange.id);
      count.streamed += 1;
    } else {
      const answer = JSON.parse(exchange.response);
      const { output } = await client.responses.create(request);
      assert.deepEqual(output.map(({ type, id }) => [type, id]), answer.output.map(({ type, id }) => [type, id]), exchange.id);
      count.tools += output.some(({ type }) => type === "function_call");
      count.plain += 1;
    }
  }
  assert(Object.values(count).every((n) => n > 0), JSON.stringify(count));
  console.log(`responses: ${count.plain} recorded, ${count.tools} of them with calls of tools, ${count.streamed} streams; embeddings`);
}

async function recorded() {
  const count = { plain: 0, streamed: 0, refused: 0 };
  for (const exchange of exchanges("chat")) {
    const ask = () => client.chat.completions.create({ ...exchange.request, model: `rec/${exchange.request.model}` });
    if (exchange.status === 400) {
      assert.equal((await raises(OpenAI.BadRequestError, ask)).status, 400);
      count.refused += 1;
    } else if (exchange.stream) {
      if (exchange.response.includes('"error":{')) await raises(OpenAI.APIError, async () => collect(await ask()));
      else assert.equal(await collect(await ask()), recordedText(exchange), exchange.id);
      count.streamed += 1;
    } else {
      const completion = await ask();
      assert.equal(completion.id, JSON.parse(exchange.response).id, exchange.id);
      assert.equal(said(completion.choices[0].message.content), recordedText(exchange), exchange.id);
      count.plain += 1;
    }
  }
  assert(Object.values(count).every((n) => n > 0), JSON.stringify(count));
  console.log(`recorded: ${count.plain} completions, ${count.streamed} streams, ${count.refused} refusals as recorded`);
}

async function models() {
  const listed = [];
  for await (const model of client.models.list()) listed.push(model.id);
  assert.equal(listed[0], "auto");
  assert(listed.includes("demo/echo"));
  const { id, object, owned_by } = await client.models.retrieve("demo/echo");
  assert.deepEqual([id, object, owned_by], ["demo/echo", "model", "demo"]);
  const deep = listed.find((name) => name.split("/").length > 2);
  assert.equal((await client.models.retrieve(deep)).id, deep);
  console.log(`models: ${listed.length} listed, demo/echo and ${deep} retrieved`);
}

async function errors() {
  const missing = await raises(OpenAI.NotFoundError, () => client.chat.completions.create({ model: "no-such-model", messages }));
  assert.deepEqual([missing.code, missing.param, missing.type], ["model_not_found", "model", "invalid_request_error"]);
  assert.match(missing.requestID, /^req_/);
  assert.equal((await raises(OpenAI.NotFoundError, () => client.models.retrieve("demo/none"))).code, "model_not_found");
  const bad = await raises(OpenAI.BadRequestError, () => client.chat.completions.create({ model: "auto", messages: {} }));
  assert.equal(bad.param, "messages");
  await raises(OpenAI.RateLimitError, () => client.chat.completions.create({ model: "demo/status-429", messages }));
  const wrong = new OpenAI({ baseURL, apiKey: "rtr_0000000000000000000000000000000000" });
  const incorrect = await raises(OpenAI.AuthenticationError, () => wrong.models.list());
  assert.equal(incorrect.code, "invalid_api_key");
  assert.match(incorrect.message, /Incorrect API key provided: /);
  const ask = (key, model) => new OpenAI({ baseURL, apiKey: refusedKeys[key], maxRetries: 0 }).chat.completions.create({ model, messages });
  assert.equal((await raises(OpenAI.PermissionDeniedError, () => ask("forbidden", "auto"))).code, "insufficient_scope");
  await ask("hasty", "auto");
  assert.equal((await raises(OpenAI.RateLimitError, () => ask("hasty", "auto"))).code, "rate_limit_exceeded");
  assert.equal((await raises(OpenAI.RateLimitError, () => ask("broke", "demo/dear"))).code, "insufficient_quota");
  const long = await raises(OpenAI.BadRequestError, () =>
    client.chat.completions.create({ model: "demo/short", messages: [{ role: "user", content: "word ".repeat(300) }] }),
  );
  assert.equal(long.code, "context_length_exceeded");
  assert.match(long.message, /maximum context length is 100 tokens/);
  const filtered = await raises(OpenAI.BadRequestError, () => client.chat.completions.create({ model: "strict/filter", messages }));
  assert.equal(filtered.code, "invalid_prompt");
  console.log("errors: NotFoundError, BadRequestError, RateLimitError, AuthenticationError, PermissionDeniedError");
}

async function revocation() {
  await client.chat.completions.create({ model: "auto", messages });
  const revoked = await fetch(`${baseURL}/router/keys/${keyId}`, { method: "DELETE", headers: { authorization: `Bearer ${apiKey}` } });
  assert.equal(revoked.status, 204);
  for (const stream of [false, true]) {
    const error = await raises(OpenAI.AuthenticationError, () => client.chat.completions.create({ model: "auto", messages, stream }));
    assert.deepEqual([error.status, error.code, error.type], [401, "invalid_api_key", "invalid_request_error"]);
  }
  console.log("revocation: AuthenticationError");
}

for (const part of [mock, responses, recorded, models, errors, revocation]) await part();
console.log("done");
