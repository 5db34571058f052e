"use strict";
// Draws charts as SVG from the specifications that perfkit also gives to plotly in notebooks. Every mark is a rectangle
// (a point has no size) with a function that tells what it is: pointing at a chart finds the nearest.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 260, ROW = 26, REACH = 30, WIDEST_BAR = 90;
const DASHES = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3" };
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Colours of a scale from 0 to 1.
function viridis(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1), low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((from, part) => Math.round(from + (VIRIDIS[low + 1][part] - from) * (at - low)));
  return `rgb(${mixed.join()})`;
}

// Hatching, for those who do not tell the colours apart and for print: overlaid on the fill.
const HATCHES = {
  "/": "M-1 7L7-1M-1 1L1-1M5 7L7 5", "\\": "M-1-1L7 7M5-1L7 1M-1 5L1 7", "x": "M0 0L6 6M6 0L0 6", "-": "M0 3H6",
  ".": "M2 3A1 1 0 1 0 4 3A1 1 0 1 0 2 3Z",
};
function addHatches() {
  const patterns = Object.entries(HATCHES).map(([shape, path]) => svg("pattern",
    { id: hatch(shape), width: 6, height: 6, patternUnits: "userSpaceOnUse" }, svg("path", { d: path, class: "hatch" })));
  document.body.append(svg("svg", { width: 0, height: 0, "aria-hidden": "true", class: "definitions" }, svg("defs", {}, ...patterns)));
}
const hatch = shape => `hatch-${shape.codePointAt(0)}`;

// ---- marks ---------------------------------------------------------------------------------------------------------

const box = (x, y, width, height) => `M${x.toFixed(1)} ${y.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h${(-width).toFixed(1)}z`;

function filled(canvas, path, { color, pattern }) {
  canvas.append(svg("path", { d: path, fill: color, class: "mark" }));
  if (pattern?.shape) canvas.append(svg("path", { d: path, fill: `url(#${hatch(pattern.shape)})` }));
}

// Vertical bars on categories, each series on top of the one before; below zero, below.
function drawBars(canvas, series, { x, y }, layout, marks) {
  const up = new Map(), down = new Map(), width = Math.min(WIDEST_BAR, Math.max(1, x.band * (1 - (layout.bargap ?? .25))));
  for (const one of series) {
    const path = one.x.map((name, place) => {
      const value = one.y[place];
      if (!value) return "";
      const stack = value < 0 ? down : up, from = stack.get(name) ?? 0;
      stack.set(name, from + value);
      const [top, bottom] = [y.at(from), y.at(from + value)].sort((a, b) => a - b), left = x.at(name) - width / 2;
      marks.push({ left, top, right: left + width, bottom, tell: () => told(one.hovertemplate, { x: name, y: value }) });
      return box(left, top, width, bottom - top);
    });
    filled(canvas, path.join(""), one.marker);
  }
}

// Horizontal bars from a base, one row per category.
function drawSpans(canvas, series, { x, y }, marks) {
  for (const one of series) {
    const path = one.x.map((value, place) => {
      const [base, name] = [one.base[place], one.y[place]];
      const left = x.at(base), right = Math.max(x.at(base + value), left + .5), top = y.at(name) - y.band * .33, bottom = y.at(name) + y.band * .33;
      marks.push({ left, top, right, bottom, tell: () => told(one.hovertemplate, { x: value, y: name, base, text: one.text?.[place] }) });
      if (one.textposition === "outside") canvas.append(svg("text", { x: right + 6, y: (top + bottom) / 2 + 5, class: "value" }, one.text[place]));
      return box(left, top, right - left, bottom - top);
    });
    filled(canvas, path.join(""), one.marker);
  }
}

const SYMBOLS = ["circle", "square", "diamond", "cross", "x", "triangle-up"];
function symbolPath(symbol, x, y, r) {
  const name = typeof symbol === "number" ? SYMBOLS[symbol % SYMBOLS.length] : String(symbol ?? "circle").replace("-open", "");
  const from = `M${x.toFixed(1)} ${y.toFixed(1)}`;
  if (name === "square") return `${from}m${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`;
  if (name === "diamond") return `${from}m0 ${-r * 1.3}l${r * 1.3} ${r * 1.3}l${-r * 1.3} ${r * 1.3}l${-r * 1.3} ${-r * 1.3}z`;
  if (name === "triangle-up") return `${from}m0 ${-r * 1.2}l${r * 1.2} ${r * 2.2}h${-r * 2.4}z`;
  if (name === "cross") return `${from}m${-r} ${-r / 3}h${r * .67}v${-r * .67}h${r * .67}v${r * .67}h${r * .67}v${r * .67}h${-r * .67}v${r * .67}h${-r * .67}v${-r * .67}h${-r * .67}z`;
  if (name === "x") return `${from}m${-r} ${-r * .6}l${r * .4} ${-r * .4}l${r * .6} ${r * .6}l${r * .6} ${-r * .6}l${r * .4} ${r * .4}l${-r * .6} ${r * .6}l${r * .6} ${r * .6}l${-r * .4} ${r * .4}l${-r * .6} ${-r * .6}l${-r * .6} ${r * .6}l${-r * .4} ${-r * .4}l${r * .6} ${-r * .6}z`;
  return `${from}m${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
}

function linePath(points, steps) {
  return points.map(([x, y], place) => {
    if (!place) return `M${x.toFixed(1)} ${y.toFixed(1)}`;
    return steps ? `H${x.toFixed(1)}V${y.toFixed(1)}` : `L${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join("");
}

// Between a line and the one before it.
function drawBand(canvas, one, under, { x, y }) {
  const edge = line => line.x.map((at, place) => [x.at(at), y.at(line.y[place])]).filter(point => point.every(Number.isFinite));
  const back = edge(under).reverse().map(([px, py]) => `L${px.toFixed(1)} ${py.toFixed(1)}`);
  canvas.append(svg("path", { d: `${linePath(edge(one))}${back.join("")}z`, fill: one.fillcolor }));
}

function drawMarkers(canvas, { marker = {} }, points, colour) {
  const own = (values, usual) => place => Array.isArray(values) ? values[place] : values ?? usual;
  const size = own(marker.size, 7), symbol = own(marker.symbol, "circle");
  for (const open of [false, true]) {
    const drawn = points.filter(([place]) => size(place) && String(symbol(place)).endsWith("-open") === open);
    const path = drawn.map(([place, [x, y]]) => symbolPath(symbol(place), x, y, size(place) / 2));
    if (path.length) canvas.append(svg("path", { d: path.join(""), fill: open ? "none" : colour, stroke: colour, "fill-opacity": marker.opacity ?? 1 }));
  }
}

// Horizontal strokes, seen on bars of any colour.
function drawLevels(canvas, { size, color, line }, points) {
  const d = points.map(([x, y]) => `M${(x - size / 2).toFixed(1)} ${y.toFixed(1)}h${size}`).join("");
  canvas.append(svg("path", { d, stroke: "#fff", "stroke-width": line.width + 3 }), svg("path", { d, stroke: color, "stroke-width": line.width }));
}

function drawScatter(canvas, one, { x, y }, marks, below) {
  const kept = one.x.map((_, place) => place).filter(place => Number.isFinite(one.y[place]));
  const heights = kept.map(place => one.y[place] + (below?.get(one.x[place]) ?? 0));
  const points = kept.map((place, nth) => [x.at(one.x[place]), y.at(heights[nth])]);
  const colour = one.line?.color ?? one.marker?.color, steps = one.line?.shape === "hv";
  if (below) {
    const floor = kept.map(place => [x.at(one.x[place]), y.at(below.get(one.x[place]) ?? 0)]).reverse();
    const back = floor.map(([px, py], place) => place ? (steps ? `V${py.toFixed(1)}H${px.toFixed(1)}` : `L${px.toFixed(1)} ${py.toFixed(1)}`) : `L${px.toFixed(1)} ${py.toFixed(1)}`);
    canvas.append(svg("path", { d: `${linePath(points, steps)}${back.join("")}z`, fill: colour, "fill-opacity": .8 }));
    kept.forEach((place, nth) => below.set(one.x[place], heights[nth]));
  } else if (one.mode.includes("lines")) {
    canvas.append(svg("path", { d: linePath(points, steps), fill: "none", stroke: colour, "stroke-width": one.line.width ?? 1.5,
      "stroke-dasharray": DASHES[one.line.dash] ?? "none" }));
  }
  if (one.mode.includes("text")) kept.forEach((place, nth) => canvas.append(svg("text",
    { x: points[nth][0], y: points[nth][1] - 7, class: x.band && x.band < 40 ? "value cramped" : "value", "text-anchor": "middle" }, one.text[place])));
  if (one.marker?.symbol === "line-ew") drawLevels(canvas, { ...one.marker, size: x.band ? Math.min(one.marker.size, x.band * .9) : one.marker.size }, points);
  else if (one.mode.includes("markers")) drawMarkers(canvas, one, kept.map((place, nth) => [place, points[nth]]), colour);
  if (one.error_y) canvas.append(errorBars(one, kept, x, y, colour));
  if (one.hoverinfo === "skip" || !one.hovertemplate) return;
  kept.forEach((place, nth) => marks.push({
    left: points[nth][0], right: points[nth][0], top: points[nth][1], bottom: points[nth][1],
    tell: () => told(one.hovertemplate, { x: one.x[place], y: one.y[place], text: one.text?.[place] }),
  }));
}

function errorBars({ error_y: error, x: xs, y: ys }, kept, x, y, stroke) {
  const path = kept.map(place => {
    const at = x.at(xs[place]).toFixed(1), [low, high] = [y.at(ys[place] - error.arrayminus[place]), y.at(ys[place] + error.array[place])];
    return `M${at} ${low.toFixed(1)}V${high.toFixed(1)}M${at - 3} ${low.toFixed(1)}h6M${at - 3} ${high.toFixed(1)}h6`;
  });
  return svg("path", { d: path.join(""), fill: "none", stroke });
}

function drawHeat(canvas, one, { x, y }, marks) {
  const known = one.z.flat().filter(Number.isFinite), low = Math.min(...known), high = Math.max(...known);
  one.y.forEach((row, i) => one.x.forEach((column, j) => {
    const value = one.z[i][j], left = x.at(column) - x.band / 2, top = y.at(row) - y.band / 2;
    if (!Number.isFinite(value)) return;
    canvas.append(svg("rect", { x: left, y: top, width: x.band + .3, height: y.band + .3, fill: viridis(high > low ? (value - low) / (high - low) : 1) }));
    marks.push({ left, top, right: left + x.band, bottom: top + y.band, tell: () => told(one.hovertemplate, { x: column, y: row, z: value }) });
  }));
  return [low, high];
}

// ---- a whole chart -------------------------------------------------------------------------------------------------

const isCategory = (axis, values) => axis.type === "category" || (axis.type === undefined && values.some(value => typeof value === "string"));
const distinct = values => [...new Set(values)];

function scales({ layout }, shown, frame) {
  const xs = shown.flatMap(one => one.base ? one.x.map((value, place) => value + one.base[place]) : one.x), ys = shown.flatMap(heights(shown));
  const across = Math.max(2, Math.floor((frame.right - frame.left) / 80)), upwards = layout.yaxis.autorange === "reversed";
  const x = isCategory(layout.xaxis, xs)
    ? categoryScale(distinct(xs), frame.left, frame.right, across * 2)
    : numberScale(layout.xaxis, xs, frame.left, frame.right, across);
  const rows = layout.yaxis.categoryarray ?? distinct(ys), ends = upwards ? [frame.top, frame.bottom] : [frame.bottom, frame.top];
  const limits = (layout.shapes ?? []).flatMap(shape => [shape.y0, shape.y1]);
  const y = isCategory(layout.yaxis, ys) ? categoryScale(rows, ...ends, Math.max(2, (frame.bottom - frame.top) / 14))
    : numberScale(layout.yaxis, [...ys, ...limits], ...ends, 5);
  return { x, y };
}

// The heights that the vertical axis must have room for: of stacks, their sums.
function heights(shown) {
  const up = new Map(), down = new Map();
  return one => {
    if (one.type === "heatmap" || one.orientation === "h") return one.y;
    const stacked = one.type === "bar" || one.stackgroup;
    const spread = one.error_y ? one.y.flatMap((value, place) => [value - one.error_y.arrayminus[place], value + one.error_y.array[place]]) : [];
    if (!stacked) return [...one.y, ...spread];
    return [0, ...one.y.map((value, place) => {
      const sums = value < 0 ? down : up, sum = (sums.get(one.x[place]) ?? 0) + (value ?? 0);
      sums.set(one.x[place], sum);
      return sum;
    })];
  };
}

function drawAxes(canvas, { layout }, { x, y }, frame) {
  const grid = [...(x.grid ? x.ticks.map(([at]) => `M${at.toFixed(1)} ${frame.top}V${frame.bottom}`) : []),
    ...(y.grid ? y.ticks.map(([at]) => `M${frame.left} ${at.toFixed(1)}H${frame.right}`) : [])];
  canvas.append(svg("path", { d: grid.join(""), class: "grid" }));
  for (const [at, label] of x.ticks) {
    const text = svg("text", { x: at, y: frame.bottom + 15, class: "tick x", "text-anchor": "middle" });
    text.append(...plainLines(label).map((line, place) => svg("tspan", { x: at, dy: place ? 13 : 0 }, line)));
    canvas.append(text);
  }
  for (const [at, label] of y.ticks) canvas.append(svg("text", { x: frame.left - 6, y: at + 4, class: "tick y", "text-anchor": "end" }, label));
  const below = frame.bottom + 18 + 13 * Math.max(0, ...x.ticks.map(([, label]) => plainLines(label).length));
  canvas.append(svg("text", { x: frame.left, y: below, class: "axis" }, layout.xaxis.title.text));
  canvas.append(svg("text", { x: 0, y: 11, class: "axis" }, layout.yaxis.title.text));
}

function drawShapes(canvas, layout, { x, y }, frame) {
  for (const shape of layout.shapes ?? []) {
    const [from, to] = shape.xref === "paper" ? [frame.left, frame.right] : [x.at(shape.x0), x.at(shape.x1)];
    canvas.append(svg("path", { d: `M${from} ${y.at(shape.y0)}H${to}`, class: `limit ${shape.name}`, "stroke-width": shape.line.width, "data-y": shape.y0 }));
  }
  for (const note of layout.annotations ?? []) canvas.append(svg("text", { x: frame.left + 4, y: y.at(note.y) - 4, class: "note" }, note.text));
}

// Draw a specification into `plot`, as wide as that is; return its marks.
function drawChart(plot, spec, layer) {
  const { data, layout } = spec, shown = data.filter((one, place) => layer === undefined || place === layer);
  const rows = layout.yaxis.categoryarray?.length ?? (shown[0].type === "heatmap" ? shown[0].y.length : 0);
  const lines = Math.max(1, ...(layout.xaxis.ticktext ?? []).map(text => plainLines(text).length));
  const labels = layout.yaxis.categoryarray ?? (shown[0].type === "heatmap" ? shown[0].y : []);
  const left = Math.max(58, ...labels.map(label => 14 + label.length * 6.5)), top = layout.yaxis.title.text ? 20 : 4;
  const inner = rows ? Math.min(Math.max(rows * ROW, 60), 420) : HEIGHT - 60;
  const frame = { left, right: plot.clientWidth - 12, top, bottom: top + inner };
  const canvas = svg("svg", { width: plot.clientWidth, height: frame.bottom + 24 + lines * 13, "aria-hidden": "true" }), marks = [];
  frame.left = Math.max(left, ...scales(spec, shown, frame).y.ticks.map(([, label]) => 14 + label.length * 6.5));
  const scale = scales(spec, shown, frame);
  drawAxes(canvas, spec, scale, frame);
  const bars = shown.filter(one => one.type === "bar"), sums = new Map();
  if (bars.length) (bars[0].orientation === "h" ? drawSpans(canvas, bars, scale, marks) : drawBars(canvas, bars, scale, layout, marks));
  shown.filter(one => one.type === "scatter").forEach((one, place, all) => {
    if (one.fill === "tonexty") drawBand(canvas, one, all[place - 1], scale);
    drawScatter(canvas, one, scale, marks, one.stackgroup ? sums : null);
  });
  const range = shown.filter(one => one.type === "heatmap").map(one => drawHeat(canvas, one, scale, marks))[0];
  drawShapes(canvas, layout, scale, frame);
  plot.replaceChildren(canvas);
  return { marks, range };
}

// ---- legend, hints, menus ------------------------------------------------------------------------------------------

function swatch(one) {
  const canvas = svg("svg", { width: 18, height: 12, "aria-hidden": "true" });
  if (one.type === "bar") filled(canvas, box(1, 1, 16, 10), one.marker);
  else if (one.stackgroup || one.fill) canvas.append(svg("rect", { width: 18, height: 12, fill: one.fillcolor ?? one.line.color }));
  else {
    const colour = one.line?.color ?? one.marker?.color;
    if (one.mode.includes("lines")) canvas.append(svg("path", { d: "M0 6H18", stroke: colour, "stroke-width": 2, "stroke-dasharray": DASHES[one.line.dash] ?? "none" }));
    if (one.marker?.symbol === "line-ew") drawLevels(canvas, { ...one.marker, size: 14 }, [[9, 6]]);
    else if (one.mode.includes("markers")) canvas.append(svg("path", { d: symbolPath([one.marker?.symbol].flat()[0], 9, 6, 4), fill: colour }));
  }
  return canvas;
}

function legend({ data, layout }, range) {
  const list = document.createElement("ul");
  list.className = "legend";
  if (range) {
    const unit = data[0].colorbar.ticksuffix ?? ` ${data[0].colorbar.title?.text ?? ""}`;
    const entry = document.createElement("li"), scale = document.createElement("span");
    scale.className = "scale";
    entry.append(`${withPrefix(range[0])}${unit} `, scale, ` ${withPrefix(range[1])}${unit}`);
    list.append(entry);
    return list;
  }
  const named = data.filter(one => one.showlegend !== false);
  if (layout.showlegend === false || (named.length < 2 && !layout.showlegend)) return list;
  if (layout.legend?.traceorder === "reversed") named.reverse();
  list.append(...named.map(one => {
    const entry = document.createElement("li");
    entry.append(swatch(one), ` ${plainLines(one.name).join(" ")}`);
    return entry;
  }));
  return list;
}

const hint = document.createElement("div");
hint.className = "hint";
hint.hidden = true;
hint.setAttribute("role", "status");

let hinted = null;

// Show lines of text about an element near a point of the window.
function showHint(about, lines, x, y) {
  hinted = about;
  hint.replaceChildren(...lines.map(line => Object.assign(document.createElement("div"), { textContent: line })));
  hint.hidden = false;
  hint.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - hint.offsetWidth - 8))}px`;
  hint.style.top = `${y + 18 + hint.offsetHeight > innerHeight ? y - hint.offsetHeight - 12 : y + 18}px`;
}
// Answers what leaves an element; a hint about another stays, such as one shown by keys while the pointer rests.
function hideHint(event) {
  if (event.currentTarget === hinted) hint.hidden = true;
}

const outside = (value, low, high) => Math.max(low - value, 0, value - high);
function nearest(marks, x, y) {
  let found = null, least = REACH;
  for (const mark of marks) {
    const distance = outside(x, mark.left, mark.right) + outside(y, mark.top, mark.bottom);
    if (distance < least || (distance === 0 && least === 0)) [found, least] = [mark, distance];
  }
  return found;
}

function answerPointer(plot, state) {
  plot.addEventListener("pointermove", event => {
    const edge = plot.getBoundingClientRect(), found = nearest(state.marks, event.clientX - edge.left, event.clientY - edge.top);
    found ? showHint(plot, found.tell(), event.clientX, event.clientY) : hideHint(event);
  });
  plot.addEventListener("pointerleave", hideHint);
  plot.addEventListener("blur", hideHint);
  plot.addEventListener("keydown", event => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move || !state.marks.length) return;
    event.preventDefault();
    state.at = ((state.at ?? (move > 0 ? -1 : 0)) + move + state.marks.length) % state.marks.length;
    const edge = plot.getBoundingClientRect(), mark = state.marks[state.at];
    showHint(plot, mark.tell(), edge.left + (mark.left + mark.right) / 2, edge.top + (mark.top + mark.bottom) / 2);
  });
}

function addMenu(figure, { buttons }, choose) {
  const select = document.createElement("select");
  select.setAttribute("aria-label", "What the colours show");
  buttons.forEach((button, index) => select.add(new Option(button.label, index)));
  select.addEventListener("change", () => choose(Number(select.value)));
  figure.querySelector("figcaption").append(" ", select);
}

function showChart(figure) {
  const plot = figure.querySelector(".plot"), spec = JSON.parse(figure.querySelector("script").textContent), state = { marks: [] };
  let layer = spec.layout.updatemenus ? 0 : undefined, list = null;
  const draw = () => {
    const { marks, range } = drawChart(plot, spec, layer);
    state.marks = marks;
    const fresh = legend(spec, range);
    list ? list.replaceWith(fresh) : plot.after(fresh);
    list = fresh;
  };
  spec.layout.updatemenus?.forEach(menu => addMenu(figure, menu, chosen => { layer = chosen; draw(); }));
  addSaving(figure);
  answerPointer(plot, state);
  let width = 0;
  const fit = () => { if (plot.clientWidth && plot.clientWidth !== width) { width = plot.clientWidth; draw(); } };
  new ResizeObserver(fit).observe(plot);
  return fit;
}

// A chart is drawn as soon as it has a width: those of a folded run when it is unfolded, so that a page of fifty runs
// opens as fast as one of one.
addHatches();
document.body.append(hint);
const fitCharts = [...document.querySelectorAll("figure.chart")].map(showChart);
