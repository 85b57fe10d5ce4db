// The chat of the playground and of agents. It sends the messages to the gateway's inference with
// the session's cookie, and shows the answer as it comes, and how it was routed. All is text.
(() => {
  'use strict';
  const conversations = new WeakMap();

  function conversation(form) {
    if (!conversations.has(form)) conversations.set(form, { messages: [], running: null });
    return conversations.get(form);
  }

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // The request for the next answer: the conversation so far, and what is written now.
  function request(form, message) {
    const messages = [...conversation(form).messages];
    const system = form.elements.system.value;
    if (system.trim()) messages.unshift({ role: 'system', content: system });
    if (message.trim()) messages.push({ role: 'user', content: message });
    return { model: form.elements.model.value.trim(), messages };
  }

  function turn(form, role, name) {
    const item = element('li', 'chat-turn chat-' + role);
    item.append(element('strong', '', name), element('div', 'chat-text'));
    form.querySelector('[data-log]').append(item);
    return item;
  }

  // The data of each event of a stream.
  async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '', data = [];
    for (;;) {
      const { value, done } = await reader.read();
      const lines = (rest + (done ? '\n\n' : value)).split('\n');
      rest = lines.pop();
      for (const line of lines.map((line) => line.replace(/\r$/, ''))) {
        if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
        else if (line === '' && data.length) {
          yield data.join('\n');
          data = [];
        }
      }
      if (done) return;
    }
  }

  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  // Facts below an answer: how it was routed, and what it took.
  function facts(item, pairs) {
    let list = item.querySelector('dl');
    if (!list) item.append((list = element('dl', 'chat-facts')));
    for (const [name, value] of pairs) {
      if (value === null || value === undefined || value === '') continue;
      const shown = element('dd');
      shown.append(value);
      list.append(element('dt', '', name), shown);
    }
  }

  function routing(item, headers) {
    const get = (name) => headers.get('x-rerouter-' + name);
    const rule = [get('recipe'), get('rule')].filter(Boolean).join(' · ');
    const id = headers.get('x-request-id');
    let capture = null;
    if (id) {
      capture = element('a', 'mono', id);
      capture.href = '/console/captures/' + encodeURIComponent(id);
    }
    const left = [...headers]
      .filter(([name]) => name.startsWith('x-ratelimit-remaining-'))
      .map(([name, value]) => value + ' ' + name.slice('x-ratelimit-remaining-'.length));
    const target = [get('provider'), get('model')].filter(Boolean).join('/');
    facts(item, [
      ['Answered by', target],
      ['Recipe · rule', rule],
      ['Tries', get('attempts')],
      ['Revision', get('revision')],
      ['Left out', get('dropped')],
      ['Left of limits', left.join(', ')],
      ['Capture', capture],
    ]);
  }

  function failed(item, head, text) {
    item.classList.add('chat-failed');
    const body = parsed(text);
    const shown = element('pre', 'code', body ? JSON.stringify(body, null, 2) : text);
    shown.tabIndex = 0;
    const notice = element('div', 'notice bad');
    notice.setAttribute('role', 'alert');
    notice.append(element('p', '', head), shown);
    item.append(notice);
  }

  // Reads an answer into its turn. Returns its text.
  async function read(item, answer, began) {
    const text = item.querySelector('.chat-text').appendChild(document.createTextNode(''));
    let first = null, usage = null, finish = null, tools = '';
    const take = (choice, part) => {
      finish = choice.finish_reason || finish;
      const piece = part.content || part.refusal || '';
      if (piece && first === null) first = performance.now() - began;
      text.appendData(piece);
      for (const call of part.tool_calls || []) {
        if (call.function?.name) tools += (tools ? '\n' : '') + call.function.name + ' ';
        tools += call.function?.arguments || '';
      }
    };
    if ((answer.headers.get('content-type') || '').includes('text/event-stream')) {
      for await (const data of events(answer.body)) {
        const event = parsed(data);
        if (event?.error) failed(item, 'The stream ended with an error.', data);
        usage = event?.usage || usage;
        for (const choice of event?.choices || []) take(choice, choice.delta || {});
      }
    } else {
      const whole = await answer.json();
      usage = whole.usage;
      for (const choice of whole.choices || []) take(choice, choice.message || {});
    }
    if (tools) item.querySelector('.chat-text').append(element('pre', 'code', tools));
    const took = (ms) => ms && (ms < 1000 ? ms.toFixed(0) + ' ms' : (ms / 1000).toFixed(1) + ' s');
    facts(item, [
      ['First token', took(first)],
      ['Total', took(performance.now() - began)],
      ['Tokens', usage && usage.prompt_tokens + ' in, ' + usage.completion_tokens + ' out'],
      ['Ended by', finish],
    ]);
    return text.data;
  }

  async function send(form) {
    const state = conversation(form), message = form.elements.message.value;
    if (state.running || !message.trim()) return;
    const body = request(form, message), stop = form.querySelector('[data-stop]');
    turn(form, 'user', 'You').querySelector('.chat-text').textContent = message;
    const item = turn(form, 'assistant', body.model);
    item.setAttribute('aria-busy', 'true');
    state.running = new AbortController();
    stop.disabled = false;
    form.elements.message.value = '';
    const began = performance.now();
    let answered = null;
    try {
      const answer = await fetch('/v1/chat/completions', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
        signal: state.running.signal,
      });
      routing(item, answer.headers);
      if (answer.ok) answered = await read(item, answer, began);
      else failed(item, 'HTTP ' + answer.status + ': the gateway refused it.', await answer.text());
    } catch (error) {
      if (error.name === 'AbortError') facts(item, [['Ended by', 'you']]);
      else failed(item, 'The answer did not come whole.', String(error));
      answered = item.querySelector('.chat-text').textContent || null;
    }
    if (answered === null) form.elements.message.value = message;
    else {
      state.messages.push({ role: 'user', content: message });
      state.messages.push({ role: 'assistant', content: answered });
    }
    state.running = null;
    stop.disabled = true;
    item.removeAttribute('aria-busy');
  }

  function decide(form) {
    htmx.ajax('POST', '/console/playground/decide', {
      target: form.querySelector('[data-decision]'),
      swap: 'innerHTML',
      values: { request: JSON.stringify(request(form, form.elements.message.value)) },
    });
  }

  const chatOf = (event) => event.target.closest?.('form[data-chat]');

  document.addEventListener('submit', (event) => {
    const form = chatOf(event);
    if (!form) return;
    event.preventDefault();
    send(form);
  });

  // A decision on something else than what is written now.
  document.addEventListener('input', (event) => {
    chatOf(event)?.querySelector('[data-decision]')?.replaceChildren();
  });

  document.addEventListener('keydown', (event) => {
    const form = chatOf(event);
    if (form && event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });

  document.addEventListener('click', (event) => {
    const form = chatOf(event), button = event.target.closest?.('button');
    if (!form || !button) return;
    if ('stop' in button.dataset) conversation(form).running?.abort();
    if ('decide' in button.dataset) decide(form);
    if ('clear' in button.dataset) {
      conversation(form).running?.abort();
      conversations.delete(form);
      form.querySelector('[data-log]').replaceChildren();
      form.querySelector('[data-decision]').replaceChildren();
    }
  });
})();
