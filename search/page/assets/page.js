// What the reader does: filters, axes, zoom, units opened, light and dark. Each choice draws the figures anew.
"use strict";
(() => {
  const record = JSON.parse(document.getElementById("record").textContent);
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();
  const view = {
    searchers: new Set(Charts.indices(record.searchers)), devices: new Set(Charts.indices(record.devices)),
    axis: "order", open: new Set(), theme: null,
  };

  function colours() {
    const style = getComputedStyle(root);
    for (const name of ["paper", "ink", "faint", "line", "panel", "accent"]) {
      view[name] = style.getPropertyValue(`--${name}`).trim();
    }
  }

  function draw(name) {
    const place = document.getElementById(name);
    const {height, ...option} = Charts.figures[name](record, view);
    place.style.height = `${height}px`;
    if (!drawn.has(name)) drawn.set(name, echarts.init(place, null, {renderer: "svg"}));
    const chart = drawn.get(name);
    const zoom = ((chart.getOption() || {}).dataZoom || []).map(({start, end}) => ({start, end}));
    chart.resize();
    chart.setOption(option, {notMerge: true});
    if (zoom.length) chart.dispatchAction({type: "dataZoom", dataZoomIndex: 0, ...zoom[0]});
  }

  const present = () => Object.keys(Charts.figures).filter((name) => document.getElementById(name));
  const drawAll = () => present().forEach(draw);

  function show(theme) {
    root.dataset.theme = theme;
    colours();
    const button = document.getElementById("theme");
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(theme === "dark"));
    drawAll();
  }

  const chosen = () => view.theme || (dark.matches ? "dark" : "light");

  function filterRows() {
    document.querySelectorAll("tr[data-searcher]").forEach((row) => {
      row.hidden = !view.searchers.has(Number(row.dataset.searcher));
    });
    document.querySelectorAll("tr[data-devices]").forEach((row) => {
      row.hidden = !row.dataset.devices.split(" ").every((d) => view.devices.has(Number(d)));
    });
  }

  function choose(input, set, index) {
    if (input.checked) set.add(index); else set.delete(index);
    filterRows();
    drawAll();
  }

  function zoomed(does) {
    const chart = drawn.get("timelines");
    const {start, end} = chart.getOption().dataZoom[0];
    const [wide, middle] = [end - start, (start + end) / 2];
    const to = {
      "Zoom in": [middle - wide / 4, middle + wide / 4], "Zoom out": [middle - wide, middle + wide],
      "Earlier": start < wide / 2 ? [0, wide] : [start - wide / 2, end - wide / 2],
      "Later": end > 100 - wide / 2 ? [100 - wide, 100] : [start + wide / 2, end + wide / 2], "Whole step": [0, 100],
    }[does];
    chart.dispatchAction({type: "dataZoom", dataZoomIndex: 0, start: Math.max(0, to[0]), end: Math.min(100, to[1])});
  }

  function changeGraph(does) {
    const chart = drawn.get("graph");
    if (does.startsWith("Zoom")) {
      const [originX, originY] = [chart.getWidth() / 2, chart.getHeight() / 2];
      chart.dispatchAction({type: "graphRoam", seriesIndex: 0, zoom: does === "Zoom in" ? 1.4 : 1 / 1.4, originX, originY});
      return;
    }
    view.open = new Set(does.startsWith("Open") ? record.nodes.unit : []);
    draw("graph");
  }

  const TOOLS = {timelines: zoomed, graph: changeGraph};

  document.querySelectorAll("input[data-searcher]").forEach((input) => input.addEventListener(
    "change", () => choose(input, view.searchers, Number(input.dataset.searcher))));
  document.querySelectorAll("input[data-device]").forEach((input) => input.addEventListener(
    "change", () => choose(input, view.devices, Number(input.dataset.device))));
  document.querySelectorAll("input[name=axis]").forEach((input) => input.addEventListener("change", () => {
    view.axis = input.value;
    draw("convergence");
  }));
  document.querySelectorAll("[data-figure] button").forEach((button) => button.addEventListener(
    "click", () => TOOLS[button.parentElement.dataset.figure](button.dataset.does)));
  document.querySelectorAll(".swatch").forEach((mark) => {
    mark.style.background = Charts[mark.classList.contains("device") ? "device" : "searcher"](Number(mark.dataset.index));
  });
  document.getElementById("theme").addEventListener("click", () => {
    view.theme = chosen() === "dark" ? "light" : "dark";
    show(view.theme);
  });
  dark.addEventListener("change", () => show(chosen()));
  window.addEventListener("beforeprint", () => show("light"));
  window.addEventListener("afterprint", () => show(chosen()));
  window.addEventListener("resize", () => drawn.forEach((chart) => chart.resize()));
  show(chosen());
  if (drawn.has("graph")) {
    drawn.get("graph").on("click", (clicked) => {
      if (clicked.dataType !== "node") return;
      const unit = clicked.data.unit;
      if (!view.open.delete(unit)) view.open.add(unit);
      draw("graph");
    });
  }
})();
