"use strict";
// Charts are drawn when they come into view: a page of fifty runs opens as fast as one of one.
const colours = JSON.parse(document.getElementById("colours").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const patterns = { communication: "/", data_loading: ".", memcpy: "x", wait: "/" };
const quiet = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"] };

const ink = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const layout = more => ({
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink("--ink"), size: 12 },
  margin: { l: 60, r: 10, t: 10, b: 45 }, hoverlabel: { namelength: -1 }, ...more,
});

const axis = (title, more) => ({ title: { text: title }, gridcolor: ink("--line"), zerolinecolor: ink("--line"), ...more });

function stack(plot, it) {
  const bars = it.series.map(one => ({
    type: "bar", name: one.name, x: it.x, y: one.ms, hovertemplate: `${it.axis} %{x}: %{y:.6~g} ms<extra>${one.name}</extra>`,
    marker: { color: colours[one.colour], pattern: {
      shape: patterns[one.colour] ?? "", size: 6, fillmode: "overlay", fgcolor: "rgba(255,255,255,.55)",
    } },
  }));
  return Plotly.newPlot(plot, bars, layout({
    barmode: "stack", bargap: it.x.length > 40 ? 0 : .25, legend: { orientation: "h", y: -.32, yanchor: "top", traceorder: "normal" },
    xaxis: axis(it.axis, { type: "category", nticks: 20 }), yaxis: axis(it.y),
  }), quiet);
}

// Lines that the colour-blind, and a printer without colours, can tell apart.
const strokes = [["#0072b2", "solid", "circle"], ["#d55e00", "dash", "square"], ["#cc79a7", "dot", "diamond"],
  ["#009e73", "dashdot", "cross"], ["#e69f00", "longdash", "x"], ["#8c8c8c", "longdashdot", "triangle-up"]];
const text = value => String(value).replace(/[&<>]/g, found => `&#${found.charCodeAt(0)};`);

function trend(plot, it) {
  const places = it.x.map((_, index) => index);
  const unit = it.unit ? ` ${it.unit}` : "";
  const lines = it.series.map((one, index) => {
    const [colour, dash, symbol] = strokes[index % strokes.length];
    return {
      type: "scatter", mode: "lines+markers", name: one.name, x: places, y: one.y, line: { color: colour, dash, width: 1.5 },
      marker: { symbol, size: 7 }, customdata: it.runs.map(text), hovertemplate: `%{customdata}: %{y:.6~g}${unit}<extra>${one.name}</extra>`,
      ...(one.interval.some(Boolean) && { error_y: {
        type: "data", symmetric: false, thickness: 1, width: 3, color: colour,
        array: one.interval.map((ends, at) => ends ? ends[1] - one.y[at] : 0),
        arrayminus: one.interval.map((ends, at) => ends ? one.y[at] - ends[0] : 0),
      } }),
    };
  });
  const levels = it.levels.map(one => ({
    type: "line", x0: one.from - .4, x1: one.to + .4, y0: one.ms, y1: one.ms, line: { color: ink("--warning"), width: 3, dash: "dot" },
  }));
  const every = Math.max(1, Math.ceil(places.length / Math.max(2, Math.floor(plot.clientWidth / 130))));
  const shown = places.filter(place => place % every === 0);
  return Plotly.newPlot(plot, lines, layout({
    shapes: levels, showlegend: lines.length > 1, legend: { orientation: "h", y: -.32, yanchor: "top" },
    xaxis: axis("", { tickvals: shown, ticktext: shown.map(place => it.x[place]), range: [-.5, places.length - .5] }),
    yaxis: axis(it.unit, { rangemode: "tozero" }),
  }), quiet);
}

function heat(plot, it, chosen = 0) {
  const layer = it.layers[chosen];
  return Plotly.react(plot, [{
    type: "heatmap", x: it.x, y: it.y, z: layer.ms, colorscale: "Viridis", colorbar: { title: { text: "ms" } },
    hovertemplate: `rank %{y}, step %{x}: %{z:.6~g} ms<extra>${layer.name}</extra>`, hoverongaps: false,
  }], layout({
    xaxis: axis("step", { type: "category", nticks: 20 }),
    yaxis: axis("rank", { type: "category", nticks: 20, autorange: "reversed" }),
  }), quiet);
}

// Okabe and Ito's, in another order than the categories' so that they are not taken for them.
const hues = ["#0072b2", "#009e73", "#e69f00", "#cc79a7", "#d55e00", "#8c8c8c"];
const shapes = ["", "/", ".", "x", "\\", "-"];

function scatter(plot, it) {
  const hover = "%{x:.4~s}B: %{y:.4~s}B/s";
  const points = it.series.map((one, index) => ({
    type: "scatter", mode: "markers", name: one.name, x: one.bytes, y: one.busbw, legendgroup: one.name,
    marker: { symbol: index, size: 9, color: hues[index % hues.length] }, hovertemplate: `${hover}<extra>${one.name}</extra>`,
  }));
  const lines = it.series.map((one, index) => ({
    type: "scatter", mode: "lines", name: one.name, x: one.bytes, y: one.fit, legendgroup: one.name, showlegend: false,
    line: { color: hues[index % hues.length], dash: "dot" }, hovertemplate: `${hover}<extra>${one.name}, fitted</extra>`,
  })).filter(one => one.y);
  return Plotly.newPlot(plot, [...points, ...lines], layout({
    legend: { orientation: "h", y: -.32, yanchor: "top" },
    xaxis: axis("message size", { type: "log", ticksuffix: "B", exponentformat: "SI" }),
    yaxis: axis("busbw", { type: "log", ticksuffix: "B/s", exponentformat: "SI" }),
  }), quiet);
}

function levels(plot, it) {
  const drawn = it.series.map((one, index) => ({
    type: "scatter", mode: "lines+markers", name: one.name, x: one.ms, y: one.bytes,
    marker: { symbol: strokes[index][2], color: strokes[index][0], opacity: 1, line: { width: 0 }, size: one.ms.map((_, at) => at === one.peak ? 10 : 0) },
    line: { shape: "hv", width: 1.5, color: strokes[index][0], dash: strokes[index][1] },
    hovertemplate: `%{x:.6~g} ms: %{y:.4~s}B<extra>${one.name}</extra>`,
  }));
  const limit = it.limit && {
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: it.limit, y1: it.limit, line: { color: ink("--error"), width: 2, dash: "dot" } }],
    annotations: [{ xref: "paper", x: 0, xanchor: "left", y: it.limit, yanchor: "bottom", text: "the device's memory", showarrow: false }],
  };
  return Plotly.newPlot(plot, drawn, layout({
    showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom" }, ...limit,
    xaxis: axis(it.axis, { range: [0, Math.max(...it.series.flatMap(one => one.ms))] }), yaxis: axis(it.y, {
      ticksuffix: "B", exponentformat: "SI", range: [0, 1.08 * Math.max(it.limit ?? 1, ...it.series.flatMap(one => one.bytes))],
    }),
  }), quiet);
}

function lines(plot, it) {
  const sizes = [...new Set(it.lines.flatMap(one => one.x))].sort((a, b) => a - b);
  const drawn = it.lines.map((one, index) => ({
    type: "scatter", mode: "lines+markers", name: one.name, x: one.x, y: one.y, marker: { symbol: index ? "diamond-open" : "circle", size: 8 },
    line: { color: hues[index], dash: index ? "dot" : "solid" }, error_y: { type: "data", symmetric: false, array: one.up, arrayminus: one.down },
    hovertemplate: `${it.axis} %{x}: %{y:.6~g} ${it.unit}<extra>${one.name}</extra>`,
  }));
  const ideal = { type: "scatter", mode: "lines", name: "ideal", x: it.ideal.x, y: it.ideal.y, line: { color: hues[5], dash: "dash" }, hoverinfo: "skip" };
  return Plotly.newPlot(plot, [...drawn, ideal], layout({
    legend: { orientation: "h", y: -.25, yanchor: "top" },
    xaxis: axis(it.axis, { type: "log", tickvals: sizes, ticktext: sizes.map(String) }), yaxis: axis(it.unit, { type: "log" }),
  }), quiet);
}

function bars(plot, it) {
  const drawn = it.series.map((one, index) => ({
    type: "bar", name: one.name, x: it.x, y: one.y, hovertemplate: `%{x}: %{y:.1f} ${it.unit}<extra>${one.name}</extra>`,
    marker: { color: hues[index], pattern: { shape: shapes[index], size: 6, fillmode: "overlay", fgcolor: "rgba(255,255,255,.55)" } },
  }));
  return Plotly.newPlot(plot, drawn, layout({
    barmode: "relative", legend: { orientation: "h", y: -.25, yanchor: "top" },
    xaxis: axis(it.axis, { type: "category" }), yaxis: axis(it.unit),
  }), quiet);
}

function choose(figure, it, draw) {
  const select = document.createElement("select");
  select.setAttribute("aria-label", "What the colours show");
  it.layers.forEach((layer, index) => select.add(new Option(layer.name, index)));
  select.addEventListener("change", () => draw(Number(select.value)));
  figure.querySelector("figcaption").append(" ", select);
}

function show(figure) {
  const plot = figure.querySelector(".plot");
  const it = JSON.parse(figure.querySelector("script").textContent);
  const kinds = { heat, stack, scatter, levels, lines, bars, trend };
  const draw = chosen => kinds[it.kind](plot, it, chosen);
  if (it.kind === "heat") choose(figure, it, draw);
  draw(0);
  dark.addEventListener("change", () => { Plotly.purge(plot); draw(Number(figure.querySelector("select")?.value ?? 0)); });
  addEventListener("beforeprint", () => Plotly.Plots.resize(plot));
}

const seen = new IntersectionObserver(entries => entries.filter(entry => entry.isIntersecting).forEach(entry => {
  seen.unobserve(entry.target);
  show(entry.target);
}), { rootMargin: "400px" });
document.querySelectorAll("figure.chart").forEach(figure => seen.observe(figure));
addEventListener("beforeprint", () => document.querySelectorAll("figure.chart").forEach(figure => {
  if (!figure.querySelector(".plotly")) { seen.unobserve(figure); show(figure); }
}));

// Sorting: numbers with their units by size, everything else as text.
const units = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, k: 1e3, M: 1e6, G: 1e9 };
function worth(text) {
  const found = /^([+-]?[\d,]*\.?\d+)\s*([a-zA-Zµ]*)/.exec(text.trim());
  return found ? Number(found[1].replaceAll(",", "")) * (units[found[2]] ?? 1) : null;
}
function compare(a, b) {
  const [x, y] = [worth(a), worth(b)];
  if (x === null || y === null) return x === y ? a.localeCompare(b) : x === null ? -1 : 1;
  return x - y;
}
document.querySelectorAll("th button").forEach(button => button.addEventListener("click", () => {
  const header = button.parentElement, body = header.closest("table").tBodies[0];
  const up = header.getAttribute("aria-sort") === "descending";
  header.parentElement.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  const text = row => row.cells[header.cellIndex].querySelector("span").textContent;
  [...body.rows].sort((a, b) => compare(text(a), text(b)) * (up ? 1 : -1)).forEach(row => body.append(row));
}));
