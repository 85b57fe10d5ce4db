// The pictures of README and docs: each page shows what it is a picture of, in light and dark.
import { check, given, open, picture, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  for (const dark of [false, true]) {
    const page = await open(browser, { width: 1280, height: 800, dark });
    const take = async (name) => {
      await check(page);
      await picture(page, `${name}-${dark ? 'dark' : 'light'}`);
    };
    const top = (locator) => locator.evaluate((one) => { one.scrollIntoView({ block: 'start' }); window.scrollBy(0, -8); });

    await signIn(page);
    await page.getByRole('link', { name: 'target', exact: true }).click();
    await page.getByText('only').waitFor({ state: 'detached' });
    await page.locator('figure.chart canvas').nth(4).waitFor();
    await page.getByRole('rowheader', { name: 'anthropic/claude-sonnet-5' }).first().waitFor();
    await top(page.getByRole('heading', { name: 'Traffic' }));
    await take('overview');

    await page.goto(`/console/captures/${given.capture}`);
    await page.getByRole('region', { name: 'Why it went there' }).getByText('openai/gpt-5').first().waitFor();
    await take('capture');
    await page.goto(`/console/captures/${given.capture}/compare/${given.again}`);
    await page.getByRole('heading', { name: 'Text' }).waitFor();
    await take('compare');

    await page.goto('/console/routing');
    await top(page.getByRole('heading', { name: 'The live document' }));
    await page.locator('svg.rt-picture title', { hasText: 'mistral/mistral-small' }).first().waitFor({ state: 'attached' });
    await take('routing');
    await page.getByLabel('Routing document', { exact: true }).fill(given.cheaper);
    await page.getByRole('button', { name: 'What would this change?' }).click();
    const report = page.locator('#rt-report');
    await report.getByRole('heading', { name: 'What would change' }).waitFor();
    await report.locator('svg.rt-flow').waitFor();
    await top(report);
    await take('evaluate');
    await page.context().close();
  }
});
