// The routing document: numbers of lines, the way from a message to its place, and the progress of
// an evaluation. The pages work without it.
(() => {
  'use strict';
  const EVALUATE = '/console/routing/evaluate';
  const find = (selector) => document.querySelector(selector);
  const number = new Intl.NumberFormat();

  // Numbers the lines, and marks those with messages.
  const numberLines = () => {
    const [area, gutter] = [find('#rt-text'), find('.rt-gutter')];
    if (!area || !gutter) return;
    const marks = new Map();
    for (const { dataset } of document.querySelectorAll('#rt-messages [data-rt-line]')) {
      const line = Number(dataset.rtLine);
      if (marks.get(line) !== 'problem') marks.set(line, dataset.rtKind);
    }
    const parts = [];
    let plain = '';
    const lines = area.value.split('\n').length;
    for (let line = 1; line <= lines; line += 1) {
      const mark = marks.get(line);
      if (mark) {
        const marked = document.createElement('span');
        marked.className = `rt-mark-${mark}`;
        marked.textContent = `${mark === 'problem' ? '●' : '▲'} ${line}`;
        parts.push(plain, marked);
        plain = '\n';
      } else {
        plain += `${line}\n`;
      }
    }
    gutter.replaceChildren(...parts, plain);
    gutter.scrollTop = area.scrollTop;
  };

  // Puts the cursor at a line and column, both from 1. Columns count characters.
  const go = (line, column) => {
    const area = find('#rt-text');
    const lines = area.value.split('\n');
    const before = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    const within = [...(lines[line - 1] ?? '')].slice(0, column - 1).join('').length;
    area.focus();
    area.setSelectionRange(before + within, before + within);
    area.scrollTop = (line - 4) * parseFloat(getComputedStyle(area).lineHeight);
  };

  // The lines of an answer, each as JSON.
  async function* linesOf(body) {
    let rest = '';
    for await (const part of body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + part).split('\n');
      rest = lines.pop();
      for (const line of lines) yield JSON.parse(line);
    }
    if (rest) yield JSON.parse(rest);
  }

  // The session ended while somebody wrote: the text stays here, so the way in opens elsewhere.
  const tellSessionEnded = () => window.rerouter.tell(
    'Your session has ended. What you wrote is still here: sign in in a new tab, then go on.',
    'bad', () => window.open('/console/sign-in?next=/console/routing'), 'Sign in',
  );

  let work = null;

  const show = (html) => {
    window.htmx.swap('#rt-report', html, { swapStyle: 'innerHTML' });
    find('#rt-report').focus();
  };

  const tellProgress = ({ done, limit, changed, reached }) => {
    const bar = find('#rt-bar');
    bar.max = limit;
    bar.value = done;
    find('#rt-reached').textContent = `${number.format(done)} of at most ${number.format(limit)} `
      + `decided, back to ${new Date(reached).toLocaleString()}; `
      + `${number.format(changed)} would have another first choice`;
  };

  const evaluate = async (form) => {
    work?.abort();
    const own = new AbortController();
    work = own;
    find('#rt-bar').removeAttribute('value');
    find('#rt-reached').textContent = '';
    find('#rt-report').replaceChildren();
    find('#rt-progress').hidden = false;
    try {
      const answer = await fetch(EVALUATE, {
        method: 'POST',
        body: new URLSearchParams(new FormData(form)),
        headers: {
          accept: 'application/x-ndjson',
          'hx-request': 'true',
          'hx-current-url': location.href,
        },
        signal: own.signal,
      });
      if (answer.headers.has('hx-redirect')) {
        tellSessionEnded();
        return;
      }
      const kind = answer.headers.get('content-type') ?? '';
      if (!kind.startsWith('application/x-ndjson')) {
        show(await answer.text());
        return;
      }
      let last = null;
      for await (const line of linesOf(answer.body)) {
        if (line.html === undefined) tellProgress(line);
        else last = line.html;
      }
      if (last === null) throw new Error('The evaluation ended early.');
      show(last);
    } catch {
      if (!own.signal.aborted) {
        window.rerouter.tell('The evaluation did not end.', 'bad', () => evaluate(form));
      }
    } finally {
      if (work === own) {
        work = null;
        find('#rt-progress').hidden = true;
      }
    }
  };

  // What was written and not applied is nowhere else, so leaving the page asks first. The page's
  // own buttons take the text along.
  let isTaken = false;
  const area = () => find('textarea[name="document"]');
  const isWritten = (of) => 'rtWritten' in of.dataset || of.value !== of.defaultValue;
  window.addEventListener('beforeunload', (event) => {
    if (!isTaken && area() && isWritten(area())) event.preventDefault();
  });

  // Sends the form, and with it the text, only while the session lasts.
  const send = async (form, submitter) => {
    const answer = await fetch('/v1/auth/me').catch(() => null);
    if (answer?.status === 401) {
      tellSessionEnded();
      return;
    }
    if (!answer || answer.status >= 500) {
      window.rerouter.tell(
        'The gateway does not answer now. What you wrote is still here.',
        'bad', () => send(form, submitter),
      );
      return;
    }
    isTaken = true;
    // A download does not leave the page.
    setTimeout(() => { isTaken = false; }, 1000);
    form.requestSubmit(submitter);
  };

  document.addEventListener('submit', (event) => {
    if (event.submitter?.getAttribute('formaction') === EVALUATE) {
      event.preventDefault();
      evaluate(event.target);
    } else if (!isTaken && event.target.contains(area())) {
      event.preventDefault();
      send(event.target, event.submitter);
    }
  });
  document.addEventListener('htmx:beforeOnLoad', (event) => {
    if (!area() || event.detail.xhr.getResponseHeader('hx-redirect') === null) return;
    event.preventDefault();
    tellSessionEnded();
  });
  document.addEventListener('click', (event) => {
    if (event.target.closest?.('#rt-stop')) work?.abort();
    const link = event.target.closest?.('[data-rt-line]');
    if (!link) return;
    event.preventDefault();
    go(Number(link.dataset.rtLine), Number(link.dataset.rtColumn));
  });
  document.addEventListener('input', (event) => {
    if (event.target.id === 'rt-text') numberLines();
  });
  // Scrolling does not bubble.
  document.addEventListener('scroll', (event) => {
    const gutter = event.target.id === 'rt-text' && find('.rt-gutter');
    if (gutter) gutter.scrollTop = event.target.scrollTop;
  }, true);
  document.addEventListener('htmx:afterSwap', numberLines);
  document.addEventListener('htmx:load', numberLines);
  numberLines();
})();
