// Times in the reader's own zone, copying, and failures of requests. Every page works without it.
(() => {
  'use strict';
  const short = new Intl.DateTimeFormat(undefined, { dateStyle: 'short', timeStyle: 'medium' });

  const local = (root) => {
    for (const time of root.querySelectorAll('time[datetime]:not([title])')) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = time.textContent;
      time.textContent = short.format(at);
    }
    for (const button of root.querySelectorAll('button[data-copy][hidden]')) {
      button.hidden = !navigator.clipboard;
    }
  };

  // Shows a message for a while; one with a button, which calls `act`, stays.
  const tell = (text, kind = 'bad', act = null, label = 'Try again') => {
    const message = document.createElement('div');
    message.className = `notice ${kind}`;
    message.append(document.createElement('p'));
    message.firstChild.textContent = text;
    if (act) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = label;
      button.addEventListener('click', () => { message.remove(); act(); });
      message.append(button);
    }
    document.getElementById('messages').replaceChildren(message);
    if (!act) setTimeout(() => message.remove(), 8000);
  };

  const signIn = () => {
    const here = location.pathname + location.search;
    location.assign(`/console/sign-in?next=${encodeURIComponent(here)}`);
  };

  // A call of the API. Throws an error with the refusal's own words, and its `status`.
  const call = async (path, options = {}) => {
    let answer;
    try {
      answer = await fetch(path, { credentials: 'same-origin', ...options });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Error('The gateway does not answer.');
    }
    if (answer.ok) return answer;
    if (answer.status === 401) signIn();
    const body = await answer.json().catch(() => ({}));
    const words = body.detail ?? body.error?.message ?? `The gateway answered ${answer.status}.`;
    throw Object.assign(new Error(words), { status: answer.status, body });
  };

  window.rerouter = { call, tell, signIn };

  document.addEventListener('click', async (event) => {
    const button = event.target.closest?.('button[data-copy]');
    if (!button) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    const label = button.textContent;
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = label; }, 2000);
  });

  const again = (event) => {
    const { elt, requestConfig } = event.detail;
    const quiet = elt.hasAttribute?.('data-quiet');
    const text = event.type === 'htmx:timeout'
      ? 'The gateway took too long.' : 'The gateway does not answer.';
    const { verb, path, target, parameters } = requestConfig ?? {};
    const repeat = verb === 'get' && !quiet
      ? () => window.htmx.ajax(verb, path, { source: elt, target, values: parameters }) : null;
    tell(text, 'bad', repeat);
  };
  document.addEventListener('htmx:sendError', again);
  document.addEventListener('htmx:timeout', again);
  document.addEventListener('htmx:load', (event) => local(event.detail.elt));
  local(document);
})();
