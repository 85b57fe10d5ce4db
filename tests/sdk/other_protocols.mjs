// Clients for Node, unmodified, against a gateway whose providers have other APIs: OpenAI's and Anthropic's SDKs and the Vercel AI SDK. Asserts.
// Environment, providers and the two headers: as other_protocols.py.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

const { REROUTER_BASE_URL: baseURL, REROUTER_KEY: apiKey } = process.env;
const [TEXT, CITY, RAIN, ADVICE] = ["I will look.", { city: "Paris" }, "It rains in Paris.", "Take an umbrella."];
const prompt = "How is the weather in Paris?";
const messages = [{ role: "user", content: prompt }];
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const look = { name: "look", description: "Looks at a city." };
const headers = { "anthropic-beta": "passed-1", "openai-beta": "passed=1" };
const byOpenAI = new OpenAI({ baseURL, apiKey, maxRetries: 0, defaultHeaders: headers });
const byAnthropic = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey, maxRetries: 0, defaultHeaders: headers });

// What the provider refuses is the client's own kind of error, with the provider's words.
async function refuses(is, ask) {
  for (const [model, status, words] of [["busy", 429, "Slow down."], ["bad", 400, "Bad value."]]) {
    await assert.rejects(() => ask(model), (error) => is(error, status) && error.message.includes(words));
  }
}

async function openaiChat(provider) {
  const asked = { model: `${provider}/model`, messages, tools: [{ type: "function", function: { ...look, parameters: schema } }] };
  const answer = await byOpenAI.chat.completions.create(asked);
  const stream = byOpenAI.chat.completions.stream({ ...asked, stream_options: { include_usage: true } });
  for (const { choices, usage } of [answer, await stream.finalChatCompletion()]) {
    const [{ message, finish_reason }] = choices;
    assert.deepEqual([message.content, finish_reason], [TEXT, "tool_calls"]);
    assert.deepEqual(message.tool_calls.map(({ function: { name, arguments: written } }) => [name, JSON.parse(written)]), [["look", CITY]]);
    assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [20, 7]);
  }
  const turn = answer.choices[0].message;
  const result = { role: "tool", tool_call_id: turn.tool_calls[0].id, content: RAIN };
  const last = await byOpenAI.chat.completions.create({ ...asked, messages: [...messages, turn, result] });
  assert.deepEqual([last.choices[0].message.content, last.choices[0].finish_reason], [ADVICE, "stop"]);
  const kinds = { 429: OpenAI.RateLimitError, 400: OpenAI.BadRequestError };
  await refuses((error, status) => error instanceof kinds[status], (model) => byOpenAI.chat.completions.create({ model: `${provider}/${model}`, messages }));
}

async function openaiResponses(provider) {
  const asked = { model: `${provider}/model`, input: messages, tools: [{ type: "function", ...look, parameters: schema, strict: true }] };
  const answer = await byOpenAI.responses.create(asked);
  for (const read of [answer, await byOpenAI.responses.stream(asked).finalResponse()]) {
    const calls = read.output.filter(({ type }) => type === "function_call").map((call) => [call.name, JSON.parse(call.arguments)]);
    assert.deepEqual([read.output_text, calls, read.status], [TEXT, [["look", CITY]], "completed"]);
    assert.deepEqual([read.usage.input_tokens, read.usage.output_tokens], [20, 7]);
  }
  const result = { type: "function_call_output", call_id: answer.output.at(-1).call_id, output: RAIN };
  const last = await byOpenAI.responses.create({ ...asked, input: [...messages, ...answer.output, result] });
  assert.deepEqual([last.output_text, last.status], [ADVICE, "completed"]);
  const kinds = { 429: OpenAI.RateLimitError, 400: OpenAI.BadRequestError };
  await refuses((error, status) => error instanceof kinds[status], (model) => byOpenAI.responses.create({ model: `${provider}/${model}`, input: prompt }));
}

async function anthropicMessages(provider) {
  const asked = { model: `${provider}/model`, max_tokens: 64, messages, tools: [{ ...look, input_schema: schema }] };
  const answer = await byAnthropic.messages.create(asked);
  for (const { content, stop_reason, usage } of [answer, await byAnthropic.messages.stream(asked).finalMessage()]) {
    const [text, call] = content;
    assert.deepEqual([text.text, call.name, call.input, stop_reason], [TEXT, "look", CITY, "tool_use"]);
    assert.deepEqual([usage.input_tokens, usage.output_tokens], [20, 7]);
  }
  const result = { type: "tool_result", tool_use_id: answer.content[1].id, content: RAIN };
  const turns = [...messages, { role: "assistant", content: answer.content }, { role: "user", content: [result] }];
  const last = await byAnthropic.messages.create({ ...asked, messages: turns });
  assert.deepEqual([last.content.map(({ text }) => text), last.stop_reason], [[ADVICE], "end_turn"]);
  const kinds = { 429: Anthropic.RateLimitError, 400: Anthropic.BadRequestError };
  const ask = (model) => byAnthropic.messages.create({ model: `${provider}/${model}`, max_tokens: 64, messages });
  await refuses((error, status) => error instanceof kinds[status], ask);
}

// OpenAI's answers are stored by default, and the AI SDK sends what is stored as references, which only OpenAI can read.
const providerOptions = { openai: { store: false } };

const vercel = (make) => async (provider) => {
  const options = (name) => ({ model: make(`${provider}/${name}`), prompt, maxRetries: 0, providerOptions });
  const described = { description: look.description, inputSchema: jsonSchema(schema) };
  const read = async ({ text, toolCalls, finishReason, usage }) => {
    const calls = (await toolCalls).map(({ toolName, input }) => [toolName, input]);
    assert.deepEqual([await text, calls, await finishReason], [TEXT, [["look", CITY]], "tool-calls"]);
    const { inputTokens, outputTokens } = await usage;
    assert.deepEqual([inputTokens, outputTokens], [20, 7]);
  };
  await read(await generateText({ ...options("model"), tools: { look: tool(described) } }));
  const stream = streamText({ ...options("model"), tools: { look: tool(described) } });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, TEXT);
  await read(stream);
  const tools = { look: tool({ ...described, execute: async (input) => (assert.deepEqual(input, CITY), RAIN) }) };
  const whole = await generateText({ ...options("model"), tools, stopWhen: stepCountIs(3) });
  assert.deepEqual([whole.text, whole.steps.length, whole.finishReason], [ADVICE, 2, "stop"]);
  await refuses((error, status) => APICallError.isInstance(error) && error.statusCode === status, (model) => generateText(options(model)));
};

const vercelOpenAI = createOpenAI({ baseURL, apiKey, headers });
const vercelAnthropic = createAnthropic({ baseURL, apiKey, headers });
const clients = {
  "openai, chat": openaiChat,
  "openai, responses": openaiResponses,
  anthropic: anthropicMessages,
  "ai, chat": vercel((model) => vercelOpenAI.chat(model)),
  "ai, responses": vercel((model) => vercelOpenAI.responses(model)),
  "ai, messages": vercel((model) => vercelAnthropic(model)),
};

for (const provider of ["openai", "anthropic", "gemini", "responder"]) {
  for (const [name, ask] of Object.entries(clients)) {
    await ask(provider);
    console.log(name, "at", provider);
  }
}
console.log("all read");
