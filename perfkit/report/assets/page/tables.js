"use strict";
// Tables: sorted by a click on a heading, filtered by text, and shown in pages; only the rows of one are in the document,
// and on paper those of more, because nobody can turn its pages.

const PAGE = 10;
const PRINTED = 25;

// The size of a number with its unit, to sort by; null of other texts.
const UNITS = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, k: 1e3, M: 1e6, G: 1e9 };
function worth(text) {
  const match = /^([+-]?[\d,]*\.?\d+)\s*([a-zA-Zµ]*)/.exec(text.trim());
  return match ? Number(match[1].replaceAll(",", "")) * (UNITS[match[2]] ?? 1) : null;
}

function inOrder([x, a], [y, b]) {
  if (x === null || y === null) return x === y ? a.localeCompare(b) : x === null ? -1 : 1;
  return x - y;
}

class SortedTable {
  constructor(table) {
    this.table = table;
    this.rows = this.kept = [...table.tBodies[0].rows];
    this.page = 0;
    table.querySelectorAll("th button").forEach(button => button.addEventListener("click", () => this.sort(button.parentElement)));
    if (this.rows.length > PAGE) this.addControls();
  }

  // From the page that is shown on, so that the reader chooses what is printed of a long table.
  showPrinted() {
    if (!this.search) return;
    const from = this.page * PAGE, printed = this.kept.slice(from, from + PRINTED);
    this.table.tBodies[0].replaceChildren(...printed);
    const left = this.rows.length - printed.length;
    this.unprinted.textContent = left ? `${left.toLocaleString("en")} of ${this.rows.length.toLocaleString("en")} rows are not printed` : "";
  }

  sort(header) {
    const up = header.getAttribute("aria-sort") === "descending", column = header.cellIndex;
    header.parentElement.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const keyed = this.rows.map(row => {
      const text = row.cells[column].querySelector("span").textContent;
      return [worth(text), text, row];
    });
    this.rows = keyed.sort((a, b) => inOrder(a, b) * (up ? 1 : -1)).map(([, , row]) => row);
    this.filter();
  }

  addControls() {
    this.search = made("input", { type: "search", placeholder: "filter", ariaLabel: `Filter: ${this.table.caption.textContent.trim()}` });
    this.search.addEventListener("input", () => this.filter());
    const button = (text, act) => {
      const one = made("button", { type: "button", textContent: text });
      one.addEventListener("click", act);
      return one;
    };
    this.back = button("previous", () => this.show(this.page - 1));
    this.next = button("next", () => this.show(this.page + 1));
    this.count = made("span", { role: "status" });
    this.count.setAttribute("role", "status");
    this.unprinted = made("small", { className: "unprinted" });
    // Below the title, which alone stays the table's name.
    this.table.ariaLabel = this.table.caption.textContent.trim();
    this.table.caption.append(made("div", { className: "rows" }, this.search, " ", this.back, " ", this.next, " ", this.count), this.unprinted);
    this.texts = new Map(this.rows.map(row => [row, row.textContent.toLowerCase()]));
    this.filter();
  }

  filter() {
    const wanted = this.search?.value.trim().toLowerCase() ?? "";
    this.kept = wanted ? this.rows.filter(row => this.texts.get(row).includes(wanted)) : this.rows;
    this.show(0);
  }

  show(page) {
    this.page = page;
    const from = page * PAGE, to = Math.min(from + PAGE, this.kept.length);
    this.table.tBodies[0].replaceChildren(...this.kept.slice(from, to));
    if (!this.search) return;
    this.back.disabled = page === 0;
    this.next.disabled = to >= this.kept.length;
    const all = this.kept.length === this.rows.length ? "" : `, of ${this.rows.length.toLocaleString("en")}`;
    this.count.textContent = this.kept.length ? `rows ${from + 1} to ${to} of ${this.kept.length.toLocaleString("en")}${all}` : `none of ${this.rows.length.toLocaleString("en")} rows`;
  }
}

const sortedTables = [...document.querySelectorAll("figure.table > table")].map(table => new SortedTable(table));
addEventListener("beforeprint", () => sortedTables.forEach(table => table.showPrinted()));
addEventListener("afterprint", () => sortedTables.forEach(table => table.show(table.page)));
