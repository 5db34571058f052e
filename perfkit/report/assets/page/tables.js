"use strict";
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
