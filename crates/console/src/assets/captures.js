// Captures: the list renews itself, and captures run again.
(() => {
  'use strict';
  const RENEW_MS = 2500;
  const { call } = window.rerouter;

  // The list renews while somebody can see it, and nobody selects or tabs in it.
  const renew = () => {
    const list = document.querySelector('#cap-list[data-live]');
    const wanted = document.getElementById('live')?.checked;
    if (!list || !wanted || document.hidden) return;
    const selection = document.getSelection();
    const reading = selection && !selection.isCollapsed && list.contains(selection.anchorNode);
    if (!reading && !list.contains(document.activeElement)) window.htmx.trigger(list, 'renew');
  };

  const reveal = (root) => {
    for (const hidden of root.querySelectorAll('.cap-live[hidden], button[data-reroute][hidden]')) {
      hidden.hidden = false;
    }
  };

  const element = (name, ...content) => {
    const made = document.createElement(name);
    made.append(...content);
    return made;
  };

  // Names and errors come from elsewhere: what could hide or reorder text is made visible.
  const visible = (text) => String(text ?? '–').replace(
    /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (letter) => `⟨U+${letter.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`,
  );
  const target = (of) => (of ? visible(`${of.provider}/${of.model}`) : 'nothing');

  const notice = (kind, ...content) => {
    const made = element('div', ...content);
    made.className = `notice ${kind}`;
    return made;
  };

  const decided = ({ decision, original }) => {
    const rule = decision.rule ? ` by rule ${decision.recipe}.${decision.rule}` : '';
    const out = decision.candidates.filter((candidate) => !candidate.eligible);
    const lines = [
      `The live document (revision ${decision.revision}) sends it to ${target(decision)}${rule}.`,
      `Before: first choice ${target(original.decision)}, answered by ${target(original.served)}.`,
      `In this order: ${decision.plan.map(target).join(', ')}.`,
      ...out.map((candidate) => `Left out: ${target(candidate)} (${candidate.reason}).`),
    ];
    return notice('info', ...lines.map((line) => element('p', visible(line))));
  };

  const failed = (error, then) => {
    const made = notice('bad', element('p', visible(error.message)));
    if (error.body?.new_id && then) {
      const link = element('a', 'Compare what came of it');
      link.href = then + encodeURIComponent(error.body.new_id);
      made.append(element('p', link));
    }
    return made;
  };

  // The same click is sent once, also where the answer was lost.
  const fresh = () => Array.from(
    crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, '0'),
  ).join('');

  const reroute = async (button) => {
    const { reroute: path, then, dry } = button.dataset;
    const shown = document.getElementById('reroute-result');
    const buttons = [...document.querySelectorAll('button[data-reroute]')];
    const say = (...content) => shown.replaceChildren(...content);
    const began = Date.now();
    const progress = () => say(notice('info',
      element('p', `Running for ${Math.round((Date.now() - began) / 1000)} s …`)));
    for (const one of buttons) one.disabled = true;
    progress();
    const ticking = setInterval(progress, 1000);
    try {
      const options = { method: 'POST', headers: dry ? {} : { 'Idempotency-Key': fresh() } };
      const answer = await call(dry ? `${path}?dry_run=true` : path, options);
      const told = await answer.json();
      if (dry) say(decided(told));
      else location.assign(then + encodeURIComponent(told.new_id));
    } catch (error) {
      say(failed(error, then));
    } finally {
      clearInterval(ticking);
      for (const one of buttons) one.disabled = false;
    }
  };

  document.addEventListener('click', (event) => {
    const button = event.target.closest?.('button[data-reroute]');
    if (button) reroute(button);
  });
  document.addEventListener('htmx:load', (event) => reveal(event.detail.elt));
  reveal(document);
  setInterval(renew, RENEW_MS);
})();
