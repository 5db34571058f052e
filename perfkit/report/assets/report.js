"use strict";
// Charts are drawn when they come into view: a page of fifty runs opens as fast as one of one.
const dark = matchMedia("(prefers-color-scheme: dark)");
const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const ink = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The page's colours, and a legend below the chart; menus become a select beside the title.
function themed({ updatemenus, ...layout }, width) {
  const grid = { gridcolor: ink("--line"), zerolinecolor: ink("--line") };
  return {
    ...layout,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink("--ink"), size: 12 },
    margin: { l: 60, r: 10, t: 10, b: 45 }, hoverlabel: { namelength: -1 },
    legend: { orientation: "h", y: -.32, yanchor: "top", ...layout.legend },
    xaxis: { ...thinned(layout.xaxis, width), ...grid }, yaxis: { ...layout.yaxis, ...grid },
    shapes: (layout.shapes ?? []).map(shape => ({ ...shape, line: { ...shape.line, color: ink(`--${shape.name}`) } })),
  };
}

// Of given ticks on a linear axis as many as have room for their labels.
function thinned(axis, width) {
  if (!axis.tickvals || axis.type === "log") return axis;
  const every = Math.max(1, Math.ceil(axis.tickvals.length / Math.max(2, Math.floor(width / 130))));
  const kept = (_, place) => place % every === 0;
  return { ...axis, tickvals: axis.tickvals.filter(kept), ticktext: axis.ticktext.filter(kept) };
}

function addMenu(figure, plot, { buttons }) {
  const select = document.createElement("select");
  select.setAttribute("aria-label", "What the colours show");
  buttons.forEach((button, index) => select.add(new Option(button.label, index)));
  select.addEventListener("change", () => Plotly.restyle(plot, ...buttons[Number(select.value)].args));
  figure.querySelector("figcaption").append(" ", select);
}

function show(figure) {
  const plot = figure.querySelector(".plot");
  const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
  const draw = () => Plotly.react(plot, plot.data ?? data, themed(layout, plot.clientWidth), config);
  layout.updatemenus?.forEach(menu => addMenu(figure, plot, menu));
  draw();
  dark.addEventListener("change", draw);
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
  const match = /^([+-]?[\d,]*\.?\d+)\s*([a-zA-Zµ]*)/.exec(text.trim());
  return match ? Number(match[1].replaceAll(",", "")) * (units[match[2]] ?? 1) : null;
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
