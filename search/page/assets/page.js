// What the reader does: filters, axes, zoom, units opened, light and dark. Each choice draws the figures anew.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("record").textContent);
  const runs = page.cases || [page];  // of a campaign, a record for each case
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();  // place -> chart
  const chosen = {};  // case, kind and state in the lists of a campaign's page; "" for all
  const shared = {searchers: new Set(Charts.indices(page.searchers)), theme: null, shows: showsCell};
  const views = runs.map((run) => Object.assign(Object.create(shared), {
    devices: new Set(Charts.indices(run.devices)), axis: "order", open: new Set(),
  }));

  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const runOf = (element) => Number((element.closest("[data-run]") || {dataset: {run: 0}}).dataset.run);
  const isShown = (place) => place.checkVisibility();  // false in a part that is closed or filtered away

  function showsCell(i) {
    const cells = page.cells;
    return ["case", "kind", "state"].every((name) => !chosen[name] || String(cells[name][i]) === chosen[name])
      && shared.searchers.has(page.searchers.indexOf(cells.searcher[i]));
  }

  function colours() {
    const style = getComputedStyle(root);
    for (const name of ["paper", "ink", "faint", "line", "panel", "accent"]) {
      shared[name] = style.getPropertyValue(`--${name}`).trim();
    }
  }

  function draw(place) {
    const name = place.dataset.chart;
    const isOfAll = name === "overview";
    const view = Object.assign(isOfAll ? Object.create(shared) : views[runOf(place)], {width: place.clientWidth});
    const {height, ...option} = Charts.figures[name](isOfAll ? page : runs[runOf(place)], view);
    place.style.height = `${height}px`;
    if (!drawn.has(place)) begin(place);
    const chart = drawn.get(place);
    const zoom = ((chart.getOption() || {}).dataZoom || []).map(({start, end}) => ({start, end}));
    chart.resize();
    chart.setOption(option, {notMerge: true});
    if (zoom.length) chart.dispatchAction({type: "dataZoom", dataZoomIndex: 0, ...zoom[0]});
  }

  function begin(place) {
    const chart = echarts.init(place, null, {renderer: "svg"});
    drawn.set(place, chart);
    if (place.dataset.chart !== "graph") return;
    chart.on("click", (clicked) => {
      if (clicked.dataType !== "node") return;
      const {open} = views[runOf(place)];
      if (!open.delete(clicked.data.unit)) open.add(clicked.data.unit);
      draw(place);
    });
  }

  // What is in a closed part is drawn when it is opened.
  const drawAll = (within = document) => all(".chart", within).filter(isShown).forEach(draw);

  function show(theme) {
    root.dataset.theme = theme;
    colours();
    const button = document.getElementById("theme");
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(theme === "dark"));
    drawAll();
  }

  const theme = () => shared.theme || (dark.matches ? "dark" : "light");

  function filterRows() {
    all("tr[data-searcher]").forEach((row) => {
      const isChosen = ["case", "kind", "state"].every((name) => !chosen[name] || !(name in row.dataset) || row.dataset[name] === chosen[name]);
      row.hidden = !isChosen || !shared.searchers.has(Number(row.dataset.searcher));
    });
    all("tr[data-devices]").forEach((row) => {
      const {devices} = views[runOf(row)];
      row.hidden = !row.dataset.devices.split(" ").every((d) => devices.has(Number(d)));
    });
    const told = document.getElementById("shown");
    if (told) told.textContent = `${page.cells.case.length} cells, of which the filters above show ${Charts.indices(page.cells.case).filter(showsCell).length}.`;
  }

  function choose(input, set, index) {
    if (input.checked) set.add(index); else set.delete(index);
    filterRows();
    drawAll();
  }

  function filterCases() {
    all("details.case").forEach((part) => {
      const isOne = chosen.case === part.dataset.run;
      part.hidden = (chosen.case && !isOne) || (chosen.kind && !part.dataset.kind.split(" ").includes(chosen.kind));
      if (isOne) part.open = true;
    });
    filterRows();
    drawAll();
  }

  function zoomed(does, place) {
    const chart = drawn.get(place);
    const {start, end} = chart.getOption().dataZoom[0];
    const [wide, middle] = [end - start, (start + end) / 2];
    const to = {
      "Zoom in": [middle - wide / 4, middle + wide / 4], "Zoom out": [middle - wide, middle + wide],
      "Earlier": start < wide / 2 ? [0, wide] : [start - wide / 2, end - wide / 2],
      "Later": end > 100 - wide / 2 ? [100 - wide, 100] : [start + wide / 2, end + wide / 2], "Whole step": [0, 100],
    }[does];
    chart.dispatchAction({type: "dataZoom", dataZoomIndex: 0, start: Math.max(0, to[0]), end: Math.min(100, to[1])});
  }

  function changeGraph(does, place) {
    const chart = drawn.get(place);
    if (does.startsWith("Zoom")) {
      const [originX, originY] = [chart.getWidth() / 2, chart.getHeight() / 2];
      chart.dispatchAction({type: "graphRoam", seriesIndex: 0, zoom: does === "Zoom in" ? 1.4 : 1 / 1.4, originX, originY});
      return;
    }
    views[runOf(place)].open = new Set(does.startsWith("Open") ? runs[runOf(place)].nodes.unit : []);
    draw(place);
  }

  const TOOLS = {timelines: zoomed, graph: changeGraph};

  all("input[data-searcher]").forEach((input) => input.addEventListener(
    "change", () => choose(input, shared.searchers, Number(input.dataset.searcher))));
  all("input[data-device]").forEach((input) => input.addEventListener(
    "change", () => choose(input, views[runOf(input)].devices, Number(input.dataset.device))));
  all("input[data-axis]").forEach((input) => input.addEventListener("change", () => {
    views[runOf(input)].axis = input.value;
    drawAll(input.closest("section"));
  }));
  all("select[data-filter]").forEach((list) => list.addEventListener("change", () => {
    chosen[list.dataset.filter] = list.value;
    filterCases();
  }));
  all("details.case").forEach((part) => part.addEventListener("toggle", () => drawAll(part)));
  all("[data-figure] button").forEach((button) => button.addEventListener("click", () => {
    const {figure} = button.parentElement.dataset;
    TOOLS[figure](button.dataset.does, button.closest("section").querySelector(`[data-chart=${figure}]`));
  }));
  all(".swatch").forEach((mark) => {
    mark.style.background = Charts[mark.classList.contains("device") ? "device" : "searcher"](Number(mark.dataset.index));
  });
  document.getElementById("theme").addEventListener("click", () => {
    shared.theme = theme() === "dark" ? "light" : "dark";
    show(shared.theme);
  });
  dark.addEventListener("change", () => show(theme()));
  window.addEventListener("beforeprint", () => show("light"));
  window.addEventListener("afterprint", () => show(theme()));
  window.addEventListener("resize", () => window.requestAnimationFrame(() => drawAll()));
  show(theme());
  performance.mark("drawn");
})();
