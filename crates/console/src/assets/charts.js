// Draws what `data-chart` holds: lines, or with `data-bars` bars that stand on each other. The
// table beside each chart has the same numbers for those who do not see it.
(() => {
  'use strict';
  const COLOURS = 6;
  const HEIGHT = 190;
  const drawn = new Map();

  const group = (number, digits) => number.toLocaleString(undefined, { maximumFractionDigits: digits });
  const FORMATS = {
    count: (value) => (value >= 1e6 ? `${group(value / 1e6, 1)} M`
      : value >= 1e4 ? `${group(value / 1e3, 1)} k` : group(value, 2)),
    usd: (value) => `$${value !== 0 && Math.abs(value) < 0.01 ? group(value, 6) : group(value, 2)}`,
    ms: (value) => (value >= 1000 ? `${group(value / 1000, 1)} s` : `${group(value, 0)} ms`),
    share: (value) => `${group(value * 100, 1)} %`,
  };

  // Each on top of those before it. The tallest is drawn first, so that the others stand before it.
  const stack = (series) => {
    const tops = [];
    series.forEach(({ values }, at) => {
      tops.push(values.map((value, step) => (value ?? 0) + (at ? tops[at - 1][step] : 0)));
    });
    return tops;
  };

  const draw = (plot) => {
    const chart = JSON.parse(plot.dataset.chart);
    const bars = 'bars' in plot.dataset;
    const format = FORMATS[chart.unit] ?? FORMATS.count;
    const style = getComputedStyle(plot);
    const colour = (at) => style.getPropertyValue(`--chart-${(at % COLOURS) + 1}`).trim();
    const [ink, line] = ['--soft', '--line'].map((name) => style.getPropertyValue(name).trim());
    const order = chart.series.map((_, at) => (bars ? chart.series.length - 1 - at : at));
    const tops = bars ? stack(chart.series) : chart.series.map(({ values }) => values);
    const series = order.map((at) => ({
      label: chart.series[at].label,
      stroke: colour(at),
      width: bars ? 0 : 2,
      fill: bars ? colour(at) : undefined,
      paths: bars ? window.uPlot.paths.bars({ size: [0.8, 48] }) : undefined,
      points: { show: !bars && chart.x.length < 40 },
      value: (_, __, ___, step) => {
        const value = step == null ? null : chart.series[at].values[step];
        return value == null ? '–' : format(value);
      },
    }));
    const beside = bars ? (chart.x[1] - chart.x[0]) / 2 || 60 : 0;
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const options = {
      width: plot.clientWidth || 300,
      height: HEIGHT,
      cursor: { drag: { x: false, y: false }, points: { show: !bars } },
      scales: {
        // The first and the last bar are as wide as the others.
        x: { range: (_, first, last) => [first - beside, last + beside] },
        y: { range: (_, __, most) => [0, most > 0 ? most * 1.05 : 1] },
      },
      // Room for half of the last time.
      padding: [null, 28, null, null],
      axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(format) }],
      series: [{}, ...series],
    };
    drawn.get(plot)?.destroy();
    drawn.set(plot, new window.uPlot(options, [chart.x, ...order.map((at) => tops[at])], plot));
  };

  const sizes = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const width = Math.floor(contentRect.width);
      const chart = drawn.get(target);
      if (chart && width > 0 && width !== chart.width) chart.setSize({ width, height: HEIGHT });
    }
  });

  const start = (root) => {
    for (const plot of drawn.keys()) {
      if (plot.isConnected) continue;
      drawn.get(plot).destroy();
      drawn.delete(plot);
      sizes.unobserve(plot);
    }
    for (const plot of root.querySelectorAll('[data-chart]')) {
      if (drawn.has(plot)) continue;
      draw(plot);
      sizes.observe(plot);
    }
  };

  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const plot of drawn.keys()) draw(plot);
  });
  document.addEventListener('htmx:load', (event) => start(event.detail.elt));
  start(document);
})();
