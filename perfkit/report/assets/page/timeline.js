"use strict";
// The timeline of one step of one rank on a canvas: rows of slices; zoom, pan, hover and the same by keys.

const ROW_HEIGHT = 18, TITLE_HEIGHT = 15, AXIS_HEIGHT = 20, LEAST_TEXT = 26;
const ZOOM = 1.5, CLOSEST = 50;
const KEYS = "Drag to pan, Ctrl+wheel to zoom, click a slice to choose it. Keys: arrows choose the next slice, + and - zoom, Shift+arrows pan, 0 shows all.";

class Timeline {
  // `others` are timelines of the same step on other ranks, `linked` tells of a slice that is a collective, `follow` is
  // called with what is shown, as `perfkit view --at` takes it: empty for the whole step.
  constructor(data, others = [], linked = () => [], follow = () => {}) {
    Object.assign(this, { data, linked, follow });
    this.rows = data.rows.map(row => this.unpacked(row, data));
    const below = this.rows.findLastIndex(({ lane }) => lane === "communication") + 1;
    this.rows.splice(below || this.rows.length, 0, ...others.flatMap(([label, other]) => this.rowsOf(label, other)));
    this.place();
    [this.from, this.to] = [0, data.length];
    this.canvas = made("canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", this.inWords());
    this.about = made("div", { className: "slice" });
    this.element = made("div", { className: "timeline" }, this.buttons(), this.canvas, this.about, made("p", { className: "faint", textContent: this.remark() }));
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.element.timeline = this;
  }

  // Spans are stored as start (since the one before), length and name, flat; in units of their own timeline.
  unpacked({ spans, link, ...row }, { names: texts, unit_ns: unit }, shift = 0) {
    const starts = [], lengths = [], names = [], scale = unit / this.data.unit_ns;
    for (let at = 0, start = 0; at < spans.length; at += 3) {
      start += spans[at];
      starts.push(start * scale + shift);
      lengths.push(spans[at + 1] * scale);
      names.push(texts[spans[at + 2]]);
    }
    return { ...row, starts, lengths, names, links: link ?? [] };
  }

  // What another rank did in this step, on this rank's axis; none if their clocks are not linked.
  rowsOf(label, other) {
    if (this.data.begin_ns === null || other.begin_ns === null) return [];
    const shift = (other.begin_ns - this.data.begin_ns) / this.data.unit_ns;
    return other.rows.filter(({ lane }) => lane === "category" || lane === "communication")
      .map(row => this.unpacked({ ...row, other: true, title: `rank ${label}: ${row.title}` }, other, shift));
  }

  // The vertical place of each row: rows of one lane follow each other below its title.
  place() {
    let y = AXIS_HEIGHT;
    this.rows.forEach((row, number) => {
      row.titled = number === 0 || this.rows[number - 1].title !== row.title;
      if (row.titled) y += TITLE_HEIGHT;
      row.y = y;
      y += ROW_HEIGHT;
    });
    this.height = y + 4;
  }

  inWords() {
    const parts = this.rows.filter(row => row.titled).map(row => {
      const longest = row.lengths.indexOf(Math.max(...row.lengths));
      return `${row.title}: the longest is ${row.names[longest]}, ${duration(row.lengths[longest] * this.data.unit_ns)}`;
    });
    return `Timeline, ${duration(this.data.length * this.data.unit_ns)}. ${parts.join("; ")}`;
  }

  remark() {
    const left = this.data.left_out ? ` ${this.data.left_out.toLocaleString("en")} shorter slices are left out.` : "";
    const cells = this.data.cell_ns ? ` In the first row, each cell of ${duration(this.data.cell_ns)} shows what took most of it.` : "";
    return `${KEYS}${left}${cells}`;
  }

  buttons() {
    const button = (label, text, act) => {
      const one = made("button", { type: "button", textContent: text, ariaLabel: label });
      one.addEventListener("click", act);
      return one;
    };
    return made("div", { className: "zoom" }, button("Zoom in", "+", () => this.zoom(1 / ZOOM)), button("Zoom out", "−", () => this.zoom(ZOOM)),
      button("Show the whole step", "whole step", () => this.view(0, this.data.length)));
  }

  // ---- view ----

  view(from, to) {
    const span = Math.min(Math.max(to - from, Math.min(CLOSEST, this.data.length)), this.data.length);
    this.from = Math.min(Math.max(from, 0), this.data.length - span);
    this.to = this.from + span;
    this.follow(span < this.data.length ? timeSpan(this.from * this.data.unit_ns, this.to * this.data.unit_ns) : "");
    this.draw();
  }

  zoom(factor, centre = (this.from + this.to) / 2) {
    this.view(centre - (centre - this.from) * factor, centre + (this.to - centre) * factor);
  }

  at(x) { return this.from + x / this.canvas.clientWidth * (this.to - this.from); }

  // ---- drawing ----

  draw() {
    const width = this.element.clientWidth, scale = devicePixelRatio || 1;
    if (!width) return;
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(["ink", "faint", "paper", "line", "band"].map(name => [name, style.getPropertyValue(`--${name}`).trim()]));
    Object.assign(this.canvas, { width: width * scale, height: this.height * scale });
    this.canvas.style.height = `${this.height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    this.drawAxis(pen, width);
    this.rows.forEach(row => this.drawRow(pen, row, width));
    this.drawLink(pen, width);
  }

  get link() { return this.chosen?.row.links[this.chosen.place] ?? -1; }

  // Lines from lane to lane where a chosen collective begins and ends on each rank.
  drawLink(pen, width) {
    if (this.link < 0) return;
    const per = width / (this.to - this.from);
    const found = this.rows.map(row => [row, row.links.indexOf(this.link)]).filter(([, place]) => place >= 0);
    pen.strokeStyle = this.colours.ink;
    pen.lineWidth = 1.5;
    for (const edge of [0, 1]) {
      pen.beginPath();
      found.forEach(([row, place], number) => {
        const x = (row.starts[place] + edge * row.lengths[place] - this.from) * per;
        if (number) pen.lineTo(x, row.y);
        pen.lineTo(x, row.y + ROW_HEIGHT - 2);
      });
      pen.stroke();
    }
  }

  drawAxis(pen, width) {
    const unit = this.data.unit_ns, per = width / (this.to - this.from);
    for (const ns of roundTicks(this.from * unit, this.to * unit, Math.max(2, width / 110))) {
      const x = (ns / unit - this.from) * per;
      pen.fillStyle = this.colours.line;
      pen.fillRect(x, AXIS_HEIGHT - 4, 1, this.height);
      pen.fillStyle = this.colours.faint;
      const label = ns ? duration(ns) : "0";
      if (x + 3 + pen.measureText(label).width <= width) pen.fillText(label, x + 3, 11);
    }
  }

  drawRow(pen, row, width) {
    const per = width / (this.to - this.from);
    if (row.titled) {
      pen.fillStyle = this.colours.faint;
      pen.fillText(row.title, 2, row.y - 4);
    }
    let drawn = -1;
    for (let place = this.firstAfter(row, this.from); place < row.starts.length && row.starts[place] < this.to; place++) {
      const left = (row.starts[place] - this.from) * per, wide = row.lengths[place] * per;
      if (left + wide < drawn) continue;  // within a pixel that has its colour
      drawn = Math.max(left + wide, left + .7);
      this.drawSlice(pen, row, place, Math.max(left, 0), Math.min(drawn, width));
    }
  }

  drawSlice(pen, row, place, left, right) {
    const [colour, dark] = this.colourOf(row, place), chosen = (this.chosen?.row === row && this.chosen.place === place) || (this.link >= 0 && row.links[place] === this.link);
    pen.fillStyle = colour;
    pen.fillRect(left, row.y, right - left - (right - left > 3 ? .5 : 0), ROW_HEIGHT - 2);
    if (chosen) {
      pen.strokeStyle = this.colours.ink;
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, row.y + 1, Math.max(right - left - 2, 1), ROW_HEIGHT - 4);
    }
    if (right - left < LEAST_TEXT) return;
    pen.save();
    pen.beginPath();
    pen.rect(left, row.y, right - left - 2, ROW_HEIGHT);
    pen.clip();
    pen.fillStyle = dark ? "#000" : "#fff";
    pen.fillText(row.names[place], left + 3, row.y + 12);
    pen.restore();
  }

  colourOf(row, place) {
    if (row.lane === "category") return CATEGORY_COLOURS[row.names[place]] ?? ["#bdbdbd", true];
    return LANE_COLOURS[row.lane];
  }

  // The first slice of a row that ends after an instant; slices of a row do not overlap.
  firstAfter(row, instant) {
    let low = 0, high = row.starts.length;
    while (low < high) {
      const half = (low + high) >> 1;
      row.starts[half] + row.lengths[half] <= instant ? low = half + 1 : high = half;
    }
    return low;
  }

  // ---- pointer and keys ----

  slice(x, y) {
    const row = this.rows.find(one => y >= one.y && y < one.y + ROW_HEIGHT), instant = this.at(x);
    if (!row) return null;
    const reach = (this.to - this.from) / this.canvas.clientWidth * 2, place = this.firstAfter(row, instant - reach);
    return row.starts[place] <= instant + reach ? { row, place } : null;
  }

  tell({ row, place }) {
    const unit = this.data.unit_ns;
    return [row.names[place], `${duration(row.lengths[place] * unit)}, from ${duration(row.starts[place] * unit)}`, row.title];
  }

  listen() {
    let dragged = null;
    this.canvas.addEventListener("pointerdown", event => { dragged = { x: event.offsetX, from: this.from, to: this.to }; this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointerup", event => {
      const found = dragged && Math.abs(dragged.x - event.offsetX) < 3 ? this.slice(event.offsetX, event.offsetY) : null;
      dragged = null;
      if (found) this.choose(found);
    });
    this.canvas.addEventListener("pointermove", event => {
      if (dragged) {
        const by = (dragged.x - event.offsetX) / this.canvas.clientWidth * (dragged.to - dragged.from);
        this.view(dragged.from + by, dragged.to + by);
      }
      const found = this.slice(event.offsetX, event.offsetY);
      found && !dragged ? showHint(this.canvas, this.tell(found), event.clientX, event.clientY) : hideHint(event);
    });
    this.canvas.addEventListener("pointerleave", hideHint);
    this.canvas.addEventListener("blur", hideHint);
    this.canvas.addEventListener("dblclick", event => this.zoom(1 / ZOOM / ZOOM, this.at(event.offsetX)));
    this.canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1 / ZOOM : ZOOM, this.at(event.offsetX));
    }, { passive: false });
    this.canvas.addEventListener("keydown", event => this.key(event));
  }

  key(event) {
    const pan = (this.to - this.from) / 4;
    const acts = {
      "+": () => this.zoom(1 / ZOOM), "=": () => this.zoom(1 / ZOOM), "-": () => this.zoom(ZOOM), "0": () => this.view(0, this.data.length),
      ArrowRight: () => event.shiftKey ? this.view(this.from + pan, this.to + pan) : this.go(0, 1),
      ArrowLeft: () => event.shiftKey ? this.view(this.from - pan, this.to - pan) : this.go(0, -1),
      ArrowDown: () => this.go(1, 0), ArrowUp: () => this.go(-1, 0), Escape: () => hideHint(event),
    };
    if (!(event.key in acts) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  // Choose the next slice of the row, or the one at this time in the next row; tell it.
  go(rows, slices) {
    if (!this.chosen) this.chosen = { row: this.rows[0], place: 0 };
    else if (rows) {
      const row = this.rows[Math.min(Math.max(this.rows.indexOf(this.chosen.row) + rows, 0), this.rows.length - 1)];
      const place = this.firstAfter(row, this.chosen.row.starts[this.chosen.place]);
      this.chosen = { row, place: Math.min(place, row.starts.length - 1) };
    } else this.chosen.place = Math.min(Math.max(this.chosen.place + slices, 0), this.chosen.row.starts.length - 1);
    this.reveal();
  }

  choose(slice) {
    this.chosen = slice;
    this.about.replaceChildren(made("p", { textContent: this.tell(slice).join("; ") }), ...this.linked(slice.row.lane, this.link));
    this.draw();
  }

  // Zoom to a slice and choose it; the page's tables and other ranks lead here.
  goTo(slice) {
    const start = slice.row.starts[slice.place], length = slice.row.lengths[slice.place];
    this.choose(slice);
    this.view(start - 2 * length, start + 3 * length);
  }

  // Of this rank, the slice of a name that begins nearest to an instant (ns), or the longest; of another name only if
  // none has this one: the kernel of a collective is drawn as the collective. `inside`: whatever work begins there.
  nearest(name, at, inside = false) {
    let best = null;
    const others = inside ? ["communication", "compute", "copy", "operator"] : ["communication"];
    for (const row of this.rows.filter(one => !one.other)) {
      row.starts.forEach((start, place) => {
        const named = row.names[place] === name;
        if (!named && (at === null || !others.includes(row.lane))) return;
        const worth = at === null ? row.lengths[place] : -Math.abs(start * this.data.unit_ns - at);
        if (!best || named > best.named || (named === best.named && worth > best.worth)) best = { row, place, named, worth };
      });
    }
    return best && { row: best.row, place: best.place };
  }

  sliceOf(link) {
    const row = this.rows.find(one => one.links.includes(link));
    return row ? { row, place: row.links.indexOf(link) } : null;
  }

  // Choose it, bring it into view, and tell it.
  reveal() {
    this.choose({ ...this.chosen });
    const { row, place } = this.chosen, start = row.starts[place], end = start + row.lengths[place];
    if (end <= this.from || start >= this.to) {
      const span = this.to - this.from, centre = (start + end) / 2;
      this.view(centre - span / 2, centre + span / 2);
    } else this.draw();
    const edge = this.canvas.getBoundingClientRect(), per = edge.width / (this.to - this.from);
    showHint(this.canvas, this.tell(this.chosen), edge.left + Math.max(start - this.from, 0) * per, edge.top + row.y + ROW_HEIGHT);
  }
}

// One listener for the timelines that are in the document: those of earlier choices are let go.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.querySelectorAll(".timeline").forEach(({ timeline }) => timeline.draw()));
// Colour, and whether text on it is black: those of perfkit's charts.
const { categories: CATEGORY_COLOURS = {}, lanes: LANE_COLOURS = {} } = JSON.parse(document.querySelector("#slice-colours")?.textContent ?? "{}");
