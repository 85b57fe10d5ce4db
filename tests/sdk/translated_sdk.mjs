// The official SDKs of OpenAI and Anthropic for Node over recorded answers, as they are and translated. Asserts, and prints what it did.
// Environment: as translated_sdk.py, which also holds each event against the SDK's types: those for Node have none at run time.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { delimiter } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { REROUTER_BASE_URL: base, REROUTER_RECORDED: files } = process.env;
const messages = [{ role: "user", content: "Is anybody there?" }];
const dialects = ["chat", "messages", "responses"];
const joined = (list, text) => list.map(text).join("");

function saidByCompletion({ choices: [{ message, finish_reason }], usage }) {
  let { content, reasoning_content, reasoning } = message;
  let thoughts = reasoning_content || reasoning || "";
  if (Array.isArray(content)) {
    thoughts = joined(content, ({ thinking }) => joined(thinking ?? [], ({ text }) => text));
    content = joined(content, ({ text }) => text ?? "");
  }
  const calls = (message.tool_calls ?? []).map(({ function: called, id }) => [called.name, JSON.parse(called.arguments || "{}"), id]);
  let stop = { length: "length", content_filter: "refusal", tool_calls: "calls" }[finish_reason] ?? (finish_reason ? "end" : "none");
  if (stop === "end" && calls.length) stop = "calls";
  if (stop === "end" && message.refusal) stop = "refusal";
  const cached = usage?.prompt_tokens_details?.cached_tokens || usage?.prompt_cache_hit_tokens || usage?.num_cached_tokens || usage?.cached_tokens || 0;
  const counts = usage && [usage.prompt_tokens, cached, usage.completion_tokens, usage.completion_tokens_details?.reasoning_tokens ?? 0];
  return { text: (content ?? "") + (message.refusal ?? ""), thoughts, calls, stop, counts };
}

function saidByMessage({ content, stop_reason, usage }) {
  const of = (kind) => content.filter(({ type }) => type === kind);
  const [cached, written] = [usage.cache_read_input_tokens ?? 0, usage.cache_creation_input_tokens ?? 0];
  return {
    text: joined(of("text"), ({ text }) => text),
    thoughts: joined(of("thinking"), ({ thinking }) => thinking),
    calls: of("tool_use").map(({ name, input, id }) => [name, input, id]),
    stop: { max_tokens: "length", tool_use: "calls", refusal: "refusal" }[stop_reason] ?? (stop_reason ? "end" : "none"),
    counts: [usage.input_tokens + cached + written, cached, usage.output_tokens, usage.output_tokens_details?.thinking_tokens ?? 0],
  };
}

function saidByResponse({ output, status, incomplete_details, usage }) {
  const of = (kind) => output.filter(({ type }) => type === kind);
  const contents = of("message").flatMap(({ content }) => content);
  const calls = of("function_call").map(({ name, arguments: written, call_id }) => [name, JSON.parse(written || "{}"), call_id]);
  const reason = incomplete_details?.reason;
  let stop = calls.length ? "calls" : contents.some(({ type }) => type === "refusal") ? "refusal" : "end";
  if (["queued", "in_progress"].includes(status) || (status === "incomplete" && !reason)) stop = "none";
  else if (status === "incomplete") stop = reason === "content_filter" ? "refusal" : "length";
  const thought = ({ summary, content }) => [...(summary ?? []), ...(content ?? [])].map(({ text }) => text).join("\n\n");
  return {
    text: joined(contents, ({ type, text, refusal }) => (type === "refusal" ? refusal : text)),
    thoughts: joined(of("reasoning"), thought),
    calls,
    stop,
    counts: usage && [
      usage.input_tokens,
      usage.input_tokens_details?.cached_tokens ?? 0,
      usage.output_tokens,
      usage.output_tokens_details?.reasoning_tokens ?? 0,
    ],
  };
}

const openaiClient = ({ id }, dialect) => new OpenAI({ baseURL: `${base}/${id}/${dialect}`, apiKey: "sk-none", maxRetries: 0 });
const anthropicClient = ({ id }) => new Anthropic({ baseURL: `${base}/${id}/messages`, apiKey: "sk-none", maxRetries: 0 });
const chatRequest = { model: "m", messages };
const messageRequest = { model: "m", max_tokens: 9, messages };
const responseRequest = { model: "m", input: "Is anybody there?" };

async function answer(exchange, dialect) {
  if (dialect === "chat") return saidByCompletion(await openaiClient(exchange, dialect).chat.completions.create(chatRequest));
  if (dialect === "messages") return saidByMessage(await anthropicClient(exchange).messages.create(messageRequest));
  return saidByResponse(await openaiClient(exchange, dialect).responses.create(responseRequest));
}

// Chunks put together by hand: the SDK's own helper keeps none of the members that providers add.
async function completionOf(chunks) {
  const message = { content: "", reasoning_content: "", refusal: "", tool_calls: [] };
  let finish_reason = null;
  let usage = null;
  for await (const chunk of chunks) {
    usage = chunk.usage ?? usage;
    for (const { delta, finish_reason: reason } of chunk.choices) {
      finish_reason = reason || finish_reason;
      message.reasoning_content += delta.reasoning_content || delta.reasoning || "";
      message.refusal += delta.refusal ?? "";
      if (Array.isArray(delta.content)) {
        message.reasoning_content += joined(delta.content, ({ thinking }) => joined(thinking ?? [], ({ text }) => text));
      } else message.content += delta.content ?? "";
      for (const { index, id, function: called } of delta.tool_calls ?? []) {
        const known = (message.tool_calls[index] ??= { id, function: { name: called.name, arguments: "" } });
        known.function.arguments += called.arguments ?? "";
      }
    }
  }
  return { choices: [{ message, finish_reason }], usage };
}

async function stream(exchange, dialect) {
  if (dialect === "chat") {
    const client = openaiClient(exchange, dialect);
    const said = saidByCompletion(await completionOf(await client.chat.completions.create({ ...chatRequest, stream: true })));
    if (dialect !== exchange.kind) {
      // The SDK's helper puts the same together.
      const helped = saidByCompletion(await client.chat.completions.stream(chatRequest).finalChatCompletion());
      assert.deepEqual({ ...helped, thoughts: said.thoughts }, said, exchange.id);
    }
    return said;
  }
  if (dialect === "messages") return saidByMessage(await anthropicClient(exchange).messages.stream(messageRequest).finalMessage());
  return saidByResponse(await openaiClient(exchange, dialect).responses.stream(responseRequest).finalResponse());
}

// What the dialect's SDK reads of a stream in which the provider reports an error: text and thoughts up to there, and its words.
async function broken(exchange, dialect) {
  const read = { text: "", thoughts: "" };
  const client = dialect === "messages" ? anthropicClient(exchange) : openaiClient(exchange, dialect);
  try {
    if (dialect === "chat") {
      for await (const { choices } of await client.chat.completions.create({ ...chatRequest, stream: true })) {
        for (const { delta } of choices) {
          read.text += delta.content ?? "";
          read.thoughts += delta.reasoning_content || delta.reasoning || "";
        }
      }
    } else if (dialect === "messages") {
      for await (const { delta } of await client.messages.create({ ...messageRequest, stream: true })) {
        read.text += delta?.text ?? "";
        read.thoughts += delta?.thinking ?? "";
      }
    } else {
      for await (const { type, delta, message } of await client.responses.create({ ...responseRequest, stream: true })) {
        if (type === "response.output_text.delta") read.text += delta;
        if (type === "response.reasoning_summary_text.delta") read.thoughts += delta;
        if (type === "error") return { ...read, message };
      }
    }
  } catch (error) {
    // What is no error of the SDK's has no place here.
    assert(error instanceof OpenAI.APIError || error instanceof Anthropic.APIError, error);
    return { ...read, message: error.error?.error?.message ?? error.error?.message ?? error.message };
  }
  assert.fail(`${exchange.id} as ${dialect}: no error`);
}

// Calls without an id have one in the translation. A message always has a usage.
function same(own, other, what) {
  assert.equal(own.calls.length, other.calls.length, what);
  const calls = other.calls.map(([name, input, id], at) => (assert(id, what), [name, input, own.calls[at][2] ? id : own.calls[at][2]]));
  assert.deepEqual({ ...other, calls, counts: own.counts ? other.counts : own.counts }, own, what);
}

const [answers, streams] = [{}, {}];
let [refused, brokenOff] = [0, 0];
const lines = files.split(delimiter).flatMap((file) => readFileSync(file, "utf8").split("\n").filter(Boolean));
for (const exchange of lines.map((line) => JSON.parse(line)).filter(({ kind }) => dialects.includes(kind))) {
  const streamed = exchange.content_type.startsWith("text/event-stream");
  for (const dialect of dialects.filter((dialect) => dialect !== exchange.kind)) {
    const what = `${exchange.id} of ${exchange.host} as ${dialect}`;
    if (exchange.status !== 200) {
      const { message } = JSON.parse(exchange.response).error;
      const is = (error) => [OpenAI.BadRequestError, Anthropic.BadRequestError].includes(error.constructor) && error.message.includes(message);
      await assert.rejects(() => answer(exchange, dialect), is, what);
      refused += 1;
    } else if (streamed && exchange.response.includes('"error":{"code"')) {
      const own = await broken(exchange, exchange.kind);
      assert.deepEqual(await broken(exchange, dialect), own, what);
      assert(own.text + own.thoughts && exchange.response.includes(own.message), what);
      brokenOff += 1;
    } else if (streamed) {
      same(await stream(exchange, exchange.kind), await stream(exchange, dialect), what);
      streams[dialect] = (streams[dialect] ?? 0) + 1;
    } else {
      same(await answer(exchange, exchange.kind), await answer(exchange, dialect), what);
      answers[dialect] = (answers[dialect] ?? 0) + 1;
    }
  }
}
const told = (counts) => `{${Object.entries(counts).map(([name, count]) => `'${name}': ${count}`).join(", ")}}`;
console.log("answers:", told(answers), "streams:", told(streams), "errors:", refused, "errors in streams:", brokenOff);
console.log("done");
