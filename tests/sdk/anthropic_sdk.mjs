// Anthropic's official SDK for Node, unmodified, against a running gateway. Asserts, and prints what it did.
// Environment: as openai_sdk.py; the provider `ant` answers with recorded exchanges of Anthropic's API.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { delimiter } from "node:path";
import Anthropic from "@anthropic-ai/sdk";

const { REROUTER_BASE_URL: base, REROUTER_KEY: apiKey, REROUTER_KEY_ID: keyId, REROUTER_RECORDED: files } = process.env;
const refusedKeys = JSON.parse(process.env.REROUTER_REFUSED_KEYS);
const baseURL = base.replace(/\/v1$/, "");
const client = new Anthropic({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "Is anybody there?" }];
const body = { model: "auto", max_tokens: 64, messages };

async function raises(kind, call) {
  try {
    await call();
  } catch (error) {
    assert(error instanceof kind, `${error} instead of ${kind.name}`);
    return error;
  }
  assert.fail(`no ${kind.name}`);
}

async function mock() {
  const message = await client.messages.create({ ...body, model: "demo/echo" });
  assert.deepEqual(message.content, [{ type: "text", text: "Is anybody there?" }]);
  assert.match(message._request_id, /^req_/);
  const final = await client.messages.stream(body).finalMessage();
  assert.equal(final.content[0].text, "Is anybody there?");
  assert.equal(final.stop_reason, "end_turn");
  assert((await client.messages.countTokens({ model: "auto", messages })).input_tokens > 0);
  const { response } = await client.messages.create(body).withResponse();
  assert.equal(response.headers.get("x-rerouter-provider"), "demo");
  console.log("mock: a message, a stream, a count, a raw response");
}

async function recorded() {
  const count = { plain: 0, streamed: 0, tools: 0 };
  const lines = files.split(delimiter).flatMap((file) => readFileSync(file, "utf8").split("\n").filter(Boolean));
  for (const exchange of lines.map((line) => JSON.parse(line)).filter(({ kind }) => kind === "messages")) {
    const request = { ...exchange.request, model: `ant/${exchange.request.model}` };
    if (exchange.stream) {
      const types = [];
      for await (const event of await client.messages.create(request)) types.push(event.type);
      const data = exchange.response.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      const expected = data.map((line) => JSON.parse(line.slice(5)).type).filter((type) => type !== "ping");
      assert.deepEqual(types, expected, exchange.id);
      count.streamed += 1;
    } else {
      const message = await client.messages.create(request);
      assert.deepEqual({ ...message }, JSON.parse(exchange.response), exchange.id);
      count.tools += message.content.some(({ type }) => type === "tool_use");
      count.plain += 1;
    }
  }
  assert(Object.values(count).every((n) => n > 0), JSON.stringify(count));
  console.log(`recorded: ${count.plain} messages, ${count.tools} of them with calls of tools, ${count.streamed} streams as recorded`);
}

async function models() {
  const listed = [];
  for await (const model of client.models.list({ limit: 3 })) listed.push(model.id);
  assert.equal(listed[0], "auto");
  assert(listed.includes("demo/echo") && listed.length > 6);
  const { id, type, display_name } = await client.models.retrieve("demo/echo");
  assert.deepEqual([id, type, display_name], ["demo/echo", "model", "demo/echo"]);
  console.log(`models: ${listed.length} listed in pages of three, demo/echo retrieved`);
}

async function errors() {
  const missing = await raises(Anthropic.NotFoundError, () => client.messages.create({ ...body, model: "no-such-model" }));
  assert.equal(missing.error.error.type, "not_found_error");
  assert.match(missing.requestID, /^req_/);
  const bad = await raises(Anthropic.BadRequestError, () => client.messages.create({ ...body, model: "" }));
  assert.equal(bad.error.error.type, "invalid_request_error");
  await raises(Anthropic.RateLimitError, () => client.messages.create({ ...body, model: "demo/status-429" }));
  const wrong = new Anthropic({ baseURL, apiKey: "rtr_0000000000000000000000000000000000", maxRetries: 0 });
  const refused = await raises(Anthropic.AuthenticationError, () => wrong.messages.create(body));
  assert.equal(refused.error.error.type, "authentication_error");
  assert.match(refused.message, /invalid x-api-key/);
  const ask = (key, model) => new Anthropic({ baseURL, apiKey: refusedKeys[key], maxRetries: 0 }).messages.create({ ...body, model });
  assert.equal((await raises(Anthropic.PermissionDeniedError, () => ask("forbidden", "auto"))).error.error.type, "permission_error");
  await ask("hasty", "auto");
  await raises(Anthropic.RateLimitError, () => ask("hasty", "auto"));
  await raises(Anthropic.RateLimitError, () => ask("broke", "demo/dear"));
  const long = { ...body, model: "demo/short", messages: [{ role: "user", content: "word ".repeat(300) }] };
  assert.match((await raises(Anthropic.BadRequestError, () => client.messages.create(long))).message, /prompt is too long: \d+ tokens > 100 maximum/);
  const filtered = await raises(Anthropic.BadRequestError, () => client.messages.create({ ...body, model: "ant-strict/filter" }));
  assert.equal(filtered.error.error.message, "Output blocked by content filtering policy");
  console.log("errors: NotFoundError, BadRequestError, RateLimitError, AuthenticationError, PermissionDeniedError");
}

async function revocation() {
  await client.messages.create(body);
  const revoked = await fetch(`${base}/router/keys/${keyId}`, { method: "DELETE", headers: { authorization: `Bearer ${apiKey}` } });
  assert.equal(revoked.status, 204);
  for (const call of [() => client.messages.create(body), () => client.messages.countTokens({ model: "auto", messages })]) {
    assert.equal((await raises(Anthropic.AuthenticationError, call)).status, 401);
  }
  console.log("revocation: AuthenticationError");
}

for (const part of [mock, recorded, models, errors, revocation]) await part();
console.log("done");
