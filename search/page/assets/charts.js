// How each figure looks: functions from the record and the reader's choices to options of ECharts, and nothing else.
"use strict";
const Charts = (() => {
  const DEVICES = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#8c9c2a"];
  const SEARCHERS = ["#5e6ad2", "#e07b39", "#2a9d8f", "#c8447a", "#b8860b", "#7a8794", "#3b8ecb", "#8f5fbf"];
  const SYMBOLS = ["circle", "rect", "triangle", "diamond", "roundRect", "arrow", "pin"];
  const KINDS = {
    forward: "#4c8fcc", backward: "#e0883a", update: "#6aa84f", other: "#98a2ad",
    send: "#b279a2", receive: "#7d5ba6", transfer: "#c05a5a",
  };
  const ROW = 24;  // pixels of a lane
  const [FEW, NAMED] = [30, 0.05];  // nodes of which all are named; in larger graphs those that take a good part of the time
  const [HIGH, LABEL] = [460, 66];  // pixels of the graph, and of half a node's label, which must not leave it
  const safe = (text) => echarts.format.encodeHTML(String(text));
  const ms = (seconds) => (seconds === null ? "unknown" : `${(seconds * 1e3).toPrecision(4)} ms`);
  const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
  const lines = (...parts) => parts.filter(Boolean).map(safe).join("<br>");
  const device = (i) => DEVICES[i % DEVICES.length];
  const searcher = (i) => SEARCHERS[i % SEARCHERS.length];
  const symbol = (i) => SYMBOLS[i % SYMBOLS.length];
  const indices = (list) => Array.from((list || []).keys());
  const tail = (name, length) => (name.length > length ? `…${name.slice(1 - length)}` : name);

  function base(view) {
    return {
      animation: false, backgroundColor: "transparent", aria: {enabled: false},
      textStyle: {color: view.ink, fontFamily: "system-ui, sans-serif"},
      tooltip: {
        confine: true, backgroundColor: view.panel, borderColor: view.line, textStyle: {color: view.ink, fontSize: 12},
        extraCssText: "max-width: 30rem; white-space: normal; overflow-wrap: anywhere;",
      },
    };
  }

  function axis(view, name, more = {}) {
    return {
      name, nameLocation: "middle", nameGap: 30, nameTextStyle: {color: view.faint},
      axisLabel: {color: view.faint, hideOverlap: true}, axisLine: {lineStyle: {color: view.line}},
      axisTick: {lineStyle: {color: view.line}}, splitLine: {lineStyle: {color: view.line, opacity: 0.6}}, ...more,
    };
  }

  const ticks = (view) => ({color: view.faint, hideOverlap: true, showMaxLabel: false});

  const names = (view, data, more = {}) => axis(view, "", {
    type: "category", inverse: true, data, splitLine: {show: false}, axisTick: {show: false},
    axisLabel: {color: view.ink, width: 150, overflow: "truncate"}, ...more,
  });

  function baselines(record, view) {
    const all = record.baselines;
    const bars = indices(all.name).map((i) => ({
      value: all.step_s[i] * 1e3,
      itemStyle: all.is_reference[i]
        ? {color: "transparent", borderColor: view.faint, borderType: "dashed", borderWidth: 1.5}
        : {color: all.is_delivered[i] ? view.accent : view.faint},
    }));
    const left = Math.min(250, 0.4 * view.width);
    return {
      ...base(view), height: 60 + 34 * bars.length,
      grid: {left, right: 80, top: 4, bottom: 40},
      xAxis: axis(view, "ms a step", {type: "value", min: 0}),
      yAxis: names(view, all.name, {axisLabel: {color: view.ink, width: left - 15, overflow: "truncate"}}),
      tooltip: {
        ...base(view).tooltip,
        formatter: (p) => lines(all.name[p.dataIndex], ms(all.step_s[p.dataIndex]), all.note[p.dataIndex]),
      },
      series: [{
        type: "bar", data: bars, barWidth: 18,
        label: {show: true, position: "right", color: view.ink, formatter: (p) => ms(all.step_s[p.dataIndex])},
      }],
    };
  }

  const shownRows = (record, view) => indices(record.rows.order).filter((i) => view.searchers.has(
    record.searchers.indexOf(record.rows.searcher[i])));

  function saidOfRow(record, i) {
    const rows = record.rows;
    const spread = rows.spread_s[i] === null ? "" : ` ± ${ms(rows.spread_s[i])}`;
    const found = rows.failed[i] === null ? `measured ${ms(rows.step_s[i])}${spread}` : `failed: ${rows.failed[i]}`;
    const placed = record.devices.map((name, d) => `${rows.devices[i][d]} on ${name}`).join(", ");
    const predicted = rows.predicted_s[i] === null ? "" : `predicted ${ms(rows.predicted_s[i])}`;
    return lines(`${rows.order[i]}. ${rows.searcher[i]}`, found, predicted, placed);
  }

  function points(record, view, known, place) {
    const rows = shownRows(record, view).filter(known);
    return record.searchers.map((name, k) => ({
      type: "scatter", name, symbol: symbol(k), symbolSize: 9, z: 3,
      itemStyle: {color: searcher(k), borderColor: searcher(k), borderWidth: 1.5},
      data: rows.filter((i) => record.rows.searcher[i] === name).map((i) => ({
        value: place(i), row: i, itemStyle: record.rows.is_comparable[i] ? {} : {color: view.paper},
      })),
    }));
  }

  function references(record, view) {
    const places = ["insideStartTop", "insideMiddleTop", "insideEndTop"];
    const all = record.baselines || {};
    return indices(all.name).map((i) => ({
      yAxis: all.step_s[i] * 1e3,
      lineStyle: {color: all.is_delivered[i] ? view.accent : view.faint, type: all.is_reference[i] ? "dotted" : "dashed"},
      label: {formatter: all.name[i], position: places[i % 3], color: all.is_delivered[i] ? view.accent : view.faint},
    }));
  }

  function convergence(record, view) {
    const rows = record.rows;
    const x = (i) => (view.axis === "seconds" ? rows.at_s[i] : rows.order[i]);
    const placed = (i) => x(i) !== null;
    const best = indices(rows.order).filter((i) => placed(i) && record.best_so_far_s[i] !== null);
    const top = Math.max(0, ...rows.step_s.filter((s) => s !== null), ...((record.baselines || {}).step_s || [])) * 1e3;
    const failed = shownRows(record, view).filter((i) => rows.failed[i] !== null && placed(i));
    return {
      ...base(view), height: 380,
      grid: {left: 64, right: 24, top: 24, bottom: 50},
      xAxis: axis(view, view.axis === "seconds" ? "seconds since the search began" : "measurements", {
        type: "value", minInterval: view.axis === "seconds" ? 0 : 1, min: 0, splitLine: {show: false},
      }),
      yAxis: axis(view, "ms a step", {
        type: "value", nameGap: 46, min: 0, max: Number((top * 1.08).toPrecision(2)), axisLabel: ticks(view),
      }),
      tooltip: {...base(view).tooltip, formatter: (p) => (p.data.row === undefined ? "" : saidOfRow(record, p.data.row))},
      series: [
        {
          type: "line", name: "best so far", step: "end", symbol: "none", z: 2, silent: true,
          lineStyle: {color: view.accent, width: 2}, data: best.map((i) => [x(i), record.best_so_far_s[i] * 1e3]),
          markLine: {symbol: "none", silent: true, data: references(record, view)},
        },
        ...points(record, view, (i) => rows.step_s[i] !== null && placed(i), (i) => [x(i), rows.step_s[i] * 1e3]),
        {
          type: "scatter", name: "failed", z: 4, symbolSize: 10,
          symbol: "path://M0 1L1 0L4 3L7 0L8 1L5 4L8 7L7 8L4 5L1 8L0 7L3 4Z",
          itemStyle: {color: "#d03b3b"}, data: failed.map((i) => ({value: [x(i), top], row: i})),
        },
      ],
    };
  }

  function laneBar(params, api) {
    const [lane, start, end] = [api.value(0), api.value(1), api.value(2)];
    const [from, to] = [api.coord([start, lane]), api.coord([end, lane])];
    const high = api.size([0, 1])[1] * 0.72;
    const shape = echarts.graphic.clipRectByRect(
      {x: from[0], y: from[1] - high / 2, width: Math.max(to[0] - from[0], 0.7), height: high}, params.coordSys);
    return shape && {type: "rect", shape, style: {fill: api.visual("color"), opacity: api.value(3)}};
  }

  function saidOfBar(panel, i) {
    const bars = panel.bars;
    const many = bars.count[i] > 1 ? `${bars.count[i]} pieces of work; the longest: ${bars.label[i]}` : bars.label[i];
    const when = `${ms(bars.start_s[i])} to ${ms(bars.end_s[i])}, ${ms(bars.busy_s[i])} busy`;
    return lines(many, `${bars.kind[i]} on ${panel.lanes.name[bars.lane[i]]}`, when);
  }

  function panelsOf(record) {
    const all = record.panels;
    return indices(all.name).map((i) => ({
      name: all.name[i], makespan_s: all.makespan_s[i], lanes: all.lanes[i],
      bars: Array.isArray(all.bars[i]) ? {lane: []} : all.bars[i],
    }));
  }

  function panelSeries(panel, p, shown) {
    const place = new Map(shown.map((lane, at) => [lane, at]));
    return Object.entries(KINDS).map(([kind, colour]) => ({
      type: "custom", name: kind, xAxisIndex: p, yAxisIndex: p, renderItem: laneBar, itemStyle: {color: colour},
      encode: {x: [1, 2], y: 0}, clip: true,
      data: indices(panel.bars.lane).filter((i) => panel.bars.kind[i] === kind && place.has(panel.bars.lane[i])).map((i) => {
        const long_s = panel.bars.end_s[i] - panel.bars.start_s[i];
        const share = long_s > 0 ? panel.bars.busy_s[i] / long_s : 1;
        const opacity = panel.bars.count[i] > 1 ? Math.max(0.25, share) : 1;
        return {
          value: [place.get(panel.bars.lane[i]), panel.bars.start_s[i] * 1e3, panel.bars.end_s[i] * 1e3, opacity],
          panel: p, bar: i,
        };
      }),
    }));
  }

  function timelines(record, view) {
    const panels = panelsOf(record);
    const end = Math.max(...panels.map((panel) => panel.makespan_s)) * 1e3;
    const option = {...base(view), grid: [], xAxis: [], yAxis: [], series: [], title: []};
    let top = 34;
    panels.forEach((panel, p) => {
      const shown = indices(panel.lanes.name).filter((k) => panel.lanes.devices[k].every((d) => view.devices.has(d)));
      const height = Math.max(1, shown.length) * ROW;
      option.title.push({
        text: `${panel.name}: ${ms(panel.makespan_s)}`, top, left: 8,
        textStyle: {color: view.ink, fontSize: 13, fontWeight: 600},
      });
      option.grid.push({left: 170, right: 24, top: top + 24, height, backgroundColor: view.panel, show: true, borderWidth: 0});
      const last = p === panels.length - 1;
      option.xAxis.push(axis(view, last ? "ms" : "", {
        type: "value", min: 0, max: end, gridIndex: p, nameGap: 24,
        axisLabel: {color: view.faint, hideOverlap: true, showMaxLabel: false, formatter: (v) => String(Number(v.toPrecision(4)))},
      }));
      option.yAxis.push(names(view, shown.map((k) => panel.lanes.name[k]), {gridIndex: p}));
      option.series.push(...panelSeries(panel, p, shown));
      top += 24 + height + 36;
    });
    const every = indices(panels);
    return {
      ...option, height: top + 46,
      legend: {data: Object.keys(KINDS), top: 0, left: 8, icon: "rect", itemWidth: 12, itemHeight: 12, textStyle: {color: view.ink}, type: "scroll"},
      tooltip: {...base(view).tooltip, formatter: (p) => saidOfBar(panels[p.data.panel], p.data.bar)},
      dataZoom: [
        {type: "slider", xAxisIndex: every, bottom: 4, height: 20, left: 170, right: 24, showDetail: false, filterMode: "weakFilter",
          borderColor: view.line, dataBackground: {lineStyle: {opacity: 0}, areaStyle: {opacity: 0}}, brushSelect: false},
        {type: "inside", xAxisIndex: every, zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, filterMode: "weakFilter"},
      ],
    };
  }

  // A unit's groups as one node until the reader opens it.
  function units(record, view) {
    const all = record.nodes;
    const shown = [];
    const of = new Map();  // group -> shown node
    const members = new Map();
    indices(all.name).filter((i) => view.devices.has(all.device[i])).forEach((i) => {
      if (!members.has(all.unit[i])) members.set(all.unit[i], []);
      members.get(all.unit[i]).push(i);
    });
    members.forEach((groups, unit) => {
      const parts = view.open.has(unit) ? groups.map((i) => [i]) : [groups];
      parts.forEach((part) => {
        part.forEach((i) => of.set(i, shown.length));
        const first = part.reduce((a, b) => (all.cost_s[b] > all.cost_s[a] ? b : a));
        shown.push({
          unit, first, groups: part, of: groups.length, device: all.device[first], x: all.x[first], y: all.y[first],
          cost_s: part.reduce((sum, i) => sum + (all.cost_s[i] || 0), 0),
        });
      });
    });
    return {shown, of};
  }

  function links(record, of, shown) {
    const bytes = new Map();
    const all = record.edges;
    indices(all.src).forEach((i) => {
      const [src, dst] = [of.get(all.src[i]), of.get(all.dst[i])];
      if (src === undefined || dst === undefined || src === dst) return;
      const key = `${src} ${dst}`;
      bytes.set(key, (bytes.get(key) || 0) + all.edge_bytes[i]);
    });
    return Array.from(bytes, ([key, sum]) => {
      const [src, dst] = key.split(" ").map(Number);
      return {src, dst, bytes: sum, crosses: shown[src].device !== shown[dst].device};
    });
  }

  function saidOfNode(record, node) {
    const all = record.nodes;
    const count = node.groups.reduce((sum, i) => sum + all.op_count[i], 0);
    const ops = all.ops[node.first].slice(0, 6).join(", ");
    const parts = Array.from(new Set(node.groups.map((i) => all.part[i]).filter(Boolean))).join("; ");
    const hint = node.of === 1 ? "" : node.groups.length > 1 ? `a unit of ${node.of} groups; click to open` : "click to close its unit";
    return lines(all.name[node.first], `${count} ops on ${record.devices[node.device]}, ${ms(node.cost_s)}`, parts, ops, hint);
  }

  function graph(record, view) {
    const {shown, of} = units(record, view);
    const edges = links(record, of, shown);
    // As large as the room that they fill, because what is stretched to fill it stretches the marks, too.
    const inside = {width: Math.max(80, view.width - 2 * LABEL), height: HIGH - 64};
    const spread = (of, room) => {
      const [least, most] = [Math.min(...shown.map(of)), Math.max(...shown.map(of))];
      return (node) => (most > least ? (room * (of(node) - least)) / (most - least) : room / 2);
    };
    const [x, y] = [spread((node) => node.x, inside.width), spread((node) => node.y, inside.height)];
    const dearest = Math.max(...shown.map((node) => node.cost_s), 1e-12);
    const label = (node) => tail(record.nodes.name[node.first], 20);
    const named = (node) => shown.length <= FEW || node.cost_s > NAMED * dearest;
    return {
      ...base(view), height: HIGH,
      tooltip: {
        ...base(view).tooltip,
        formatter: (p) => (p.dataType === "edge"
          ? lines(`${label(shown[p.data.from])} → ${label(shown[p.data.to])}`, mib(p.data.bytes))
          : saidOfNode(record, shown[p.data.index])),
      },
      series: [{
        type: "graph", layout: "none", roam: "move", left: LABEL, right: LABEL, top: 24, bottom: 40,
        edgeSymbol: ["none", "arrow"], edgeSymbolSize: 5, labelLayout: {hideOverlap: true},
        emphasis: {focus: "adjacency"}, scaleLimit: {min: 0.5, max: 20},
        label: {show: true, position: "bottom", fontSize: 10, color: view.ink, formatter: (p) => label(shown[p.data.index])},
        data: shown.map((node, index) => ({
          index, unit: node.unit, name: String(index), x: x(node), y: y(node),
          symbol: node.groups.some((i) => record.nodes.part[i]) ? "diamond" : node.groups.length > 1 ? "circle" : "rect",
          symbolSize: 7 + 25 * Math.sqrt(node.cost_s / dearest), label: {show: named(node)},
          itemStyle: {color: device(node.device), borderColor: view.paper, borderWidth: 1},
        })),
        links: edges.map((edge) => ({
          source: edge.src, target: edge.dst, from: edge.src, to: edge.dst, bytes: edge.bytes,
          lineStyle: edge.crosses
            ? {color: "#d03b3b", width: 1 + Math.log10(1 + edge.bytes / 1024) / 2, opacity: 0.85, curveness: 0.08}
            : {color: view.faint, width: 0.8, opacity: 0.35, curveness: 0.08},
        })),
      }],
    };
  }

  function loads(record, view) {
    const all = record.loads;
    const shown = indices(all.name).filter((d) => view.devices.has(d));
    const side = (name, values, more) => ({
      type: "bar", name, barMaxWidth: 14,
      data: shown.map((d, at) => (values[d] === null ? null : {value: more.scale * values[d], itemStyle: more.style(d, at)})),
      xAxisIndex: more.grid, yAxisIndex: more.grid, itemStyle: more.style(0), barGap: "10%",
    });
    const solid = (d) => ({color: device(d)});
    const hollow = (d) => ({color: "transparent", borderColor: device(d), borderWidth: 1.5, borderType: "dashed"});
    const pale = (d) => ({color: device(d), opacity: 0.45});
    const labels = shown.map((d) => all.name[d]);
    const titled = (text, left) => ({text, left, top: 0, textStyle: {color: view.ink, fontSize: 13, fontWeight: 600}});
    const height = 46 * Math.max(1, shown.length);
    const isNarrow = view.width < 640;
    return {
      ...base(view), height: height + 84,
      title: [titled(isNarrow ? "busy" : "busy (dashed: best single device)", 8),
        titled(isNarrow ? "memory" : "most at once, and variables (pale)", "52%")],
      grid: [
        {left: 8, right: "52%", top: 28, height, containLabel: true}, {left: "52%", right: 24, top: 28, height, containLabel: true},
      ],
      xAxis: [axis(view, "ms a step", {type: "value"}), axis(view, "MiB", {type: "value", gridIndex: 1})],
      yAxis: [names(view, labels), names(view, labels, {gridIndex: 1})],
      tooltip: {
        ...base(view).tooltip,
        formatter: (p) => {
          const d = shown[p.dataIndex];
          const limit = all.limit_bytes[d] === null ? "unlimited memory" : `of ${mib(all.limit_bytes[d])}`;
          return lines(all.name[d], `${all.ops[d]} ops, ${ms(all.busy_s[d])} busy`,
            `${mib(all.peak_bytes[d])} at most, ${mib(all.memory_bytes[d])} of variables, ${limit}`);
        },
      },
      series: [
        side("delivered", all.busy_s, {grid: 0, scale: 1e3, style: solid}),
        side("best single device", all.before_busy_s, {grid: 0, scale: 1e3, style: hollow}),
        side("most at once", all.peak_bytes, {grid: 1, scale: 2 ** -20, style: solid}),
        side("variables", all.memory_bytes, {grid: 1, scale: 2 ** -20, style: pale}),
      ],
    };
  }

  function accuracy(record, view) {
    const rows = record.rows;
    const known = (i) => rows.step_s[i] !== null && rows.predicted_s[i] !== null;
    const values = indices(rows.order).filter(known).flatMap((i) => [rows.step_s[i], rows.predicted_s[i]]);
    const top = Number((Math.max(...values) * 1.08e3).toPrecision(2));
    return {
      ...base(view), height: 400,
      grid: {left: 64, right: 24, top: 16, bottom: 50},
      xAxis: axis(view, "predicted before it was measured, ms a step", {type: "value", min: 0, max: top, axisLabel: ticks(view)}),
      yAxis: axis(view, "measured, ms a step", {type: "value", min: 0, max: top, nameGap: 46, axisLabel: ticks(view)}),
      tooltip: {...base(view).tooltip, formatter: (p) => (p.data.row === undefined ? "" : saidOfRow(record, p.data.row))},
      series: [
        {
          type: "line", symbol: "none", silent: true, data: [[0, 0], [top, top]],
          lineStyle: {color: view.faint, type: "dashed", width: 1},
        },
        ...points(record, view, known, (i) => [rows.predicted_s[i] * 1e3, rows.step_s[i] * 1e3]),
      ],
    };
  }

  return {
    figures: {baselines, convergence, timelines, graph, loads, accuracy},
    base, axis, lines, ms, names, references, symbol, device, searcher, indices,
  };
})();
