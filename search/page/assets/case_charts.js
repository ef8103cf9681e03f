// Figures of a campaign: how far its searchers came, in one case and over all cases.
"use strict";
(() => {
  const {base, axis, lines, ms, names, references, symbol, searcher, indices} = Charts;
  const DASHES = ["solid", "dashed", "dotted"];
  const [BIG, SMALL] = [10, 4];  // pixels of a curve's last mark, and of the others
  const digits = (x) => String(Number(x.toPrecision(4)));

  // From the luckiest to the unluckiest seed, in steps.
  function band(curve, colour) {
    const edge = (values) => curve.at.flatMap((x, i) => (i ? [[x, values[i - 1]], [x, values[i]]] : [[x, values[i]]]));
    const outline = [...edge(curve.high), ...edge(curve.low).reverse()];
    return {
      type: "custom", silent: true, z: 1, clip: true, encode: {x: 0, y: [1, 2]},
      data: curve.at.map((x, i) => [x, curve.low[i], curve.high[i]]),
      renderItem: (params, api) => (params.dataIndexInside ? null : {
        type: "polygon", shape: {points: outline.map((point) => api.coord(point))}, style: {fill: colour, opacity: 0.14},
      }),
    };
  }

  function curvesOf(record, view) {
    const all = record.curves;
    const known = (i) => all.axis[i] === view.axis && view.searchers.has(record.searchers.indexOf(all.searcher[i]));
    return indices(all.searcher).filter(known).map((i) => {
      const from = Math.max(0, all.at[i].findIndex((x) => x > 0));  // before it there is only the best single device
      const [at, median, low, high] = [all.at, all.median_s, all.low_s, all.high_s].map((list) => list[i].slice(from));
      const scaled = (list) => list.map((s) => s * 1e3);
      return {name: all.searcher[i], seeds: all.seeds[i], at, median: scaled(median), low: scaled(low), high: scaled(high)};
    });
  }

  const reached = (curve) => (p) => {
    const i = p.dataIndex;
    const spread = curve.seeds > 1 ? `${ms(curve.low[i] / 1e3)} to ${ms(curve.high[i] / 1e3)} over ${curve.seeds} seeds` : "one seed";
    return lines(`${curve.name}, after ${digits(curve.at[i])}`, ms(curve.median[i] / 1e3), spread);
  };

  function curves(record, view) {
    const shown = curvesOf(record, view);
    const lows = shown.flatMap((curve) => curve.low);
    const highs = shown.flatMap((curve) => curve.high);
    const room = shown.length ? 0.06 * (Math.max(...highs) - Math.min(...lows)) || 0.02 * Math.max(...highs) : 1;
    const series = shown.flatMap((curve) => {
      const k = record.searchers.indexOf(curve.name);
      const line = {
        type: "line", name: curve.name, step: "end", z: 3, showAllSymbol: true, symbol: symbol(k),
        symbolSize: (_, p) => (p.dataIndex === curve.at.length - 1 ? BIG : SMALL),
        itemStyle: {color: searcher(k)}, lineStyle: {color: searcher(k), width: 1.6, type: DASHES[k % DASHES.length]},
        tooltip: {formatter: reached(curve)}, data: curve.at.map((x, i) => [x, curve.median[i]]),
      };
      return curve.seeds > 1 ? [band(curve, searcher(k)), line] : [line];
    });
    const x = view.axis === "seconds"
      ? {type: "log", name: "seconds of asking and judging, of one search"} : {type: "value", name: "mappings judged", minInterval: 1};
    return {
      ...base(view), height: 400,
      legend: {data: shown.map((curve) => curve.name), top: 0, textStyle: {color: view.ink}, type: "scroll"},
      grid: {left: 76, right: 24, top: 36, bottom: 50},
      xAxis: axis(view, x.name, {...x, splitLine: {show: false}}),
      yAxis: axis(view, "ms a step", {
        type: "value", nameGap: 56, scale: true,
        min: shown.length ? Math.max(0, Math.min(...lows) - room) : 0, max: shown.length ? Math.max(...highs) + room : 1,
        axisLabel: {color: view.faint, hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: digits},
      }),
      series: [
        {type: "line", data: [], markLine: {symbol: "none", silent: true, data: references(record, view)}}, ...series,
      ],
    };
  }

  function overview(campaign, view) {
    const cells = campaign.cells;
    const titles = campaign.cases.map((one) => one.title);
    const ratio = (i) => (cells.best_s[i] && cells.best_single_s[i] ? cells.best_single_s[i] / cells.best_s[i] : null);
    const shown = indices(cells.case).filter((i) => ratio(i) !== null && view.shows(i));
    const cases = indices(titles).filter((c) => shown.some((i) => cells.case[i] === c));
    const ratios = shown.map(ratio);
    const left = Math.min(250, 0.36 * view.width);
    return {
      ...base(view), height: 96 + 28 * cases.length,
      legend: {data: campaign.searchers.filter((_, k) => view.searchers.has(k)), top: 0, textStyle: {color: view.ink}, type: "scroll"},
      grid: {left, right: 30, top: 34, bottom: 46},
      xAxis: axis(view, "times faster than the best single device", {
        type: "value", min: Math.min(1, ...ratios), max: Math.max(1.1, ...ratios) * 1.02, axisLabel: {color: view.faint, formatter: digits},
      }),
      yAxis: names(view, cases.map((c) => titles[c]), {axisLabel: {color: view.ink, width: left - 15, overflow: "truncate"}}),
      tooltip: {
        ...base(view).tooltip,
        formatter: ({data: {cell: i}}) => lines(titles[cells.case[i]], `${cells.searcher[i]}, seed ${cells.seed[i]}: ${ratio(i).toFixed(3)}`,
          `${cells.kind[i]} ${ms(cells.best_s[i])}, best single device ${ms(cells.best_single_s[i])}`),
      },
      series: [
        {
          type: "line", data: [],
          markLine: {symbol: "none", silent: true, data: [{xAxis: 1}], label: {show: false}, lineStyle: {color: view.faint}},
        },
        ...campaign.searchers.map((name, k) => ({
          type: "scatter", name, symbol: symbol(k), symbolSize: 10, itemStyle: {color: searcher(k), borderColor: searcher(k), borderWidth: 1.5},
          data: shown.filter((i) => cells.searcher[i] === name).map((i) => ({
            value: [ratio(i), cases.indexOf(cells.case[i])], cell: i,
            itemStyle: cells.kind[i] === "predicted" ? {color: view.paper} : {},
          })),
        })),
      ],
    };
  }

  Object.assign(Charts.figures, {curves, overview});
})();
