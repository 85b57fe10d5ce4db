// The pictures of README and docs: each page shows what it is a picture of. In dark it is only looked at.
import { between, check, given, open, picture, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  for (const dark of [false, true]) {
    const page = await open(browser, { dark });
    const take = async (name, from, to) => {
      await check(page);
      if (!dark) await picture(page, name, await between(page, from, to));
    };
    const region = (name) => page.getByRole('region', { name, exact: true });

    await signIn(page);
    await page.getByRole('link', { name: 'target', exact: true }).click();
    await page.getByText('only').waitFor({ state: 'detached' });
    await page.locator('figure.chart canvas').nth(4).waitFor();
    await page.getByRole('rowheader', { name: 'anthropic/claude-sonnet-5' }).first().waitFor();
    await take('overview', page.getByRole('heading', { name: 'Traffic' }), page.locator('figure.chart').nth(3));

    await page.goto(`/console/captures/${given.capture}`);
    await region('Why it went there').getByText('openai/gpt-5').first().waitFor();
    await take('capture', region('Why it went there'), region('Timeline'));
    await page.goto(`/console/captures/${given.capture}/compare/${given.again}`);
    await page.getByRole('heading', { name: 'Text' }).waitFor();
    await take('compare', page.getByRole('heading', { level: 1 }), region('Text'));

    await page.goto('/console/routing');
    await page.locator('svg.rt-picture title', { hasText: 'mistral/mistral-small' }).first().waitFor({ state: 'attached' });
    await take('routing', page.getByRole('heading', { name: 'The live document' }), page.locator('.rt-frame'));
    await page.getByLabel('Routing document', { exact: true }).fill(given.cheaper);
    await page.getByRole('button', { name: 'What would this change?' }).click();
    const report = page.locator('#rt-report');
    await report.locator('svg.rt-flow').waitFor();
    const changes = report.getByRole('group', { name: 'Changed requests' });
    await take('evaluate', report.getByRole('heading', { name: 'What would change' }), changes);
    await page.context().close();
  }
});
