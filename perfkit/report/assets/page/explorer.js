"use strict";
// Every rank and every step of a run as a strip of cells. Choosing a rank and a step shows how that step differs from
// the other ranks' and, if the page contains it, its timeline.

const LABELLED = 64;  // with more cells than this they are small and without text
const LEAST_SPREAD = .25;  // differences below this share of the smallest value do not use the whole colour scale

const made = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

// What cells can be coloured by: a label and the value of a step's times by category.
function measures({ categories, unit_ns: unit }) {
  const sum = times => times.reduce((total, time) => total + time, 0) * unit;
  const communication = categories.findIndex(([key]) => key === "communication");
  return [
    ["step time", sum],
    ["step time without communication", times => sum(times) - times[communication] * unit],
    ...categories.map(([, label], place) => [label, times => times[place] * unit]),
  ];
}

const mean = values => values.length ? values.reduce((total, value) => total + value, 0) / values.length : null;
function middle(values) {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// Cells by arrow keys, as one stop of the Tab key.
function moveByArrows(strip) {
  strip.addEventListener("keydown", event => {
    const cells = [...strip.querySelectorAll("button")], at = cells.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: cells.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    cells[Math.min(Math.max(to, 0), cells.length - 1)].focus();
  });
  strip.addEventListener("focusin", event => {
    strip.querySelectorAll("button[tabindex='0']").forEach(cell => { cell.tabIndex = -1; });
    event.target.tabIndex = 0;
  });
}

function paint(cell, value, low, high) {
  const share = value === null ? null : (value - low) / (Math.max(high, low * (1 + LEAST_SPREAD)) - low || 1);
  cell.style.background = share === null ? "none" : viridis(share);
  cell.style.color = share === null ? "" : share > .55 ? "#000" : "#fff";
}

class Explorer {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.querySelector("script").textContent);
    this.measures = measures(this.data);
    // Ranks that wait for each other take equally long: without communication the slow ones stand out.
    const communication = this.data.categories.findIndex(([key]) => key === "communication");
    const together = this.data.ranks.length > 1 && this.data.times.some(steps => steps.some(times => times?.[communication]));
    const [rank, step] = this.data.opens ?? [null, null];
    Object.assign(this, { measure: together ? 1 : 0, order: "rank", rank, step, proposed: new Set(this.data.opens ? ["rank", "step"] : []) });
    this.controls();
    this.rankCells = this.data.ranks.map(([label], place) => this.cell(label, `rank ${label}`, () => this.choose("rank", place)));
    this.stepCells = this.data.steps.map((label, place) => this.cell(label, `step ${label}`, () => this.choose("step", place)));
    this.data.ranks.forEach(([label], place) => this.rankCells[place].classList.toggle("late", label in this.data.stragglers));
    root.querySelectorAll(".strip").forEach(moveByArrows);
    this.arrange();
    this.strip("steps").replaceChildren(...this.stepCells);
    // Of one rank or one step there is nothing to choose, nor a scale of colours.
    const alone = ["ranks", "steps"].filter(name => this.data[name].length < 2);
    alone.forEach(name => { this.strip(name).parentElement.hidden = true; });
    root.querySelector(".controls").hidden = alone.length === 2;
    this.stepCells[0].tabIndex = 0;
    this.show();
  }

  strip(name) { return this.root.querySelector(`.strip.${name}`); }

  controls() {
    const colour = made("select", { ariaLabel: "Colour by" }), order = made("select", { ariaLabel: "Order of the ranks" });
    this.measures.forEach(([label], place) => colour.add(new Option(label, place, false, place === this.measure)));
    [["by rank and host", "rank"], ["largest first", "value"]].forEach(([label, value]) => order.add(new Option(label, value)));
    colour.addEventListener("change", () => { this.measure = Number(colour.value); this.arrange(); this.show(); });
    order.addEventListener("change", () => { this.order = order.value; this.arrange(); });
    const parts = ["Colour by ", colour, ...(this.data.ranks.length > 1 ? [" Ranks ", order] : [])];
    this.root.querySelector(".controls").replaceChildren(...parts);
  }

  cell(label, name, choose) {
    const cell = made("button", { type: "button", className: "cell", tabIndex: -1 });
    cell.dataset.name = name;
    cell.textContent = Math.max(this.data.ranks.length, this.data.steps.length) > LABELLED ? "" : label;
    const tell = event => showHint(cell, cell.ariaLabel.split("; "), event.clientX ?? cell.getBoundingClientRect().left, event.clientY ?? cell.getBoundingClientRect().bottom);
    cell.addEventListener("click", event => { choose(); tell(event); });  // its value may be of another step now
    cell.addEventListener("pointermove", tell);
    cell.addEventListener("focus", tell);
    cell.addEventListener("pointerleave", hideHint);
    cell.addEventListener("blur", hideHint);
    return cell;
  }

  // Choosing again lets go, but only of what the reader has chosen: the page proposes a rank and its likely step.
  choose(what, place) {
    const again = this[what] === place && !this.proposed.has(what);
    this[what] = again ? null : place;
    this.proposed.delete(what);
    if (what === "rank" && this.rank !== null && (this.step === null || this.proposed.has("step"))) {
      this.step = this.likelyStep();
      this.proposed.add("step");
    }
    this.show();
  }

  // What the reader has chosen, by which cells are coloured; null otherwise.
  get ownRank() { return this.proposed.has("rank") ? null : this.rank; }
  get ownStep() { return this.proposed.has("step") ? null : this.step; }

  // The longest step of the chosen rank of which there is a timeline, otherwise its longest.
  likelyStep() {
    const times = this.data.times[this.rank], drawn = this.data.timelines.filter(one => one.rank === this.rank).map(one => one.step);
    const candidates = drawn.length ? drawn : this.data.steps.map((_, place) => place).filter(place => times[place]);
    return candidates.reduce((best, place) => this.measures[0][1](times[place]) > this.measures[0][1](times[best]) ? place : best);
  }

  value(rank, step) {
    const times = this.data.times[rank][step];
    return times ? this.measures[this.measure][1](times) : null;
  }

  rankValue(rank) {
    if (this.ownStep !== null) return this.value(rank, this.ownStep);
    return mean(this.data.steps.map((_, step) => this.value(rank, step)).filter(value => value !== null));
  }

  stepValue(step) {
    if (this.ownRank !== null) return this.value(this.ownRank, step);
    const values = this.data.ranks.map((_, rank) => this.value(rank, step)).filter(value => value !== null);
    return values.length ? Math.max(...values) : null;
  }

  // Put the ranks' cells in order: under the name of their host, or the largest value first.
  arrange() {
    const strip = this.strip("ranks"), all = this.data.ranks.map((_, place) => place);
    if (this.order === "value") {
      const value = new Map(all.map(place => [place, this.rankValue(place) ?? -1]));
      strip.replaceChildren(made("div", { className: "cells" }, ...all.sort((a, b) => value.get(b) - value.get(a)).map(place => this.rankCells[place])));
    } else {
      const hosts = [...new Set(this.data.ranks.map(([, host]) => host))];
      strip.replaceChildren(...hosts.map(host => {
        const cells = made("div", { className: "cells" }, ...all.filter(place => this.data.ranks[place][1] === host).map(place => this.rankCells[place]));
        return made("div", { className: "host" }, ...(hosts.length > 1 || host ? [made("span", { className: "hostname", textContent: host || "unknown host" })] : []), cells);
      }));
    }
    strip.querySelectorAll("button").forEach((cell, place) => { cell.tabIndex = place ? -1 : 0; });
  }

  show() {
    const label = this.measures[this.measure][0], ofStep = this.ownStep === null ? "mean over steps" : `step ${this.data.steps[this.ownStep]}`;
    const ofRank = this.ownRank === null ? "largest over ranks" : `rank ${this.data.ranks[this.ownRank][0]}`;
    const byRank = this.paintAll(this.rankCells, this.rankCells.map((_, place) => this.rankValue(place)), this.rank, `${label}, ${ofStep}`);
    const byStep = this.paintAll(this.stepCells, this.stepCells.map((_, place) => this.stepValue(place)), this.step, `${label}, ${ofRank}`);
    const late = Object.keys(this.data.stragglers).length ? [made("span", { className: "late-key", textContent: "straggler" })] : [];
    this.root.querySelector(".of-ranks").replaceChildren(`Ranks, ${ofStep}`, ...byRank, ...late);
    this.root.querySelector(".of-steps").replaceChildren(`Steps, ${ofRank}`, ...byStep);
    this.showChosen();
  }

  paintAll(cells, values, chosen, label) {
    const known = values.filter(value => value !== null), low = Math.min(...known), high = Math.max(...known);
    cells.forEach((cell, place) => {
      paint(cell, values[place], low, high);
      cell.ariaPressed = String(place === chosen);
      const late = this.data.stragglers[cell.dataset.name.slice(5)];
      const parts = [cell.dataset.name, values[place] === null ? "not recorded" : `${label}: ${duration(values[place])}`];
      if (cell.classList.contains("late")) parts.push(`straggler: ${late}`);
      cell.ariaLabel = parts.join("; ");
    });
    return [made("small", {}, ` ${duration(low)} `, made("span", { className: "scale" }), ` ${duration(Math.max(high, low * (1 + LEAST_SPREAD)))} `)];
  }

  showChosen() {
    const panel = this.root.querySelector(".chosen");
    if (this.rank === null || this.step === null || !this.data.times[this.rank][this.step]) {
      const what = this.rank === null ? "a rank" : this.step === null ? "a step" : "a step that the rank recorded";
      panel.replaceChildren(made("p", { className: "faint", textContent: `Choose ${what} to see its time by category and its timeline.` }));
      return;
    }
    const timeline = this.data.timelines.find(one => one.rank === this.rank && one.step === this.step);
    const times = this.data.times[this.rank][this.step], [label] = this.data.ranks[this.rank];
    this.follow = null;
    const title = made("h4", { textContent: `Rank ${label}, step ${this.data.steps[this.step]}: ${duration(this.measures[0][1](times))}` });
    const drawn = timeline ? this.drawn(timeline).element : this.otherTimelines();
    panel.replaceChildren(title, drawn, this.against(times), this.command(timeline));
  }

  // The timeline of the chosen rank and step, above what other ranks of the page did in it.
  drawn(timeline) {
    const others = this.data.timelines.filter(one => one.step === timeline.step && one.rank !== timeline.rank);
    const drawn = new Timeline(timeline, others.map(one => [this.data.ranks[one.rank][0], one]), (lane, link) => lane === "communication" ? this.linked(timeline, link) : [], span => this.follow?.(span));
    this.timeline = drawn;
    return drawn;
  }

  // The chosen collective on other ranks.
  linked(timeline, link) {
    const one = this.data.collectives[link];
    if (!one) return this.data.ranks.length > 1 ? [made("p", { className: "faint", textContent: this.data.unlinked })] : [];
    const unit = timeline.begin_ns, longest = Math.max(...one.on.map(([, , , wait]) => wait ?? 0));
    const last = one.last === null ? null : made("p", { className: "late", textContent: `${one.partial ? `Of the ${one.ranks} ranks with traces, rank` : "Rank"} ${one.last} joined last: ${one.ranks === 2 ? `the other waited for it for ${duration(longest)}` : `the others waited for it, up to ${duration(longest)}`}.${this.data.doubt}` });
    const instant = (begin, after = 0) => begin === null || unit === null ? "unknown" : duration(begin + after - unit);
    const rows = one.on.map(([rank, begin, length, wait]) => [this.toRank(rank, timeline, link), instant(begin), instant(begin, length), duration(length), wait === null ? "unknown" : duration(wait)]);
    const heading = ["rank", "begins", "ends", "takes", "waits"].map(text => made("th", { scope: "col", textContent: text }));
    const cells = row => made("tr", {}, ...row.map(cell => made("td", {}, cell)));
    const more = one.ranks > one.on.length ? `; ${one.on.length} of ${one.ranks} ranks, among them those that wait longest` : "";
    const caption = made("caption", { textContent: `${one.name} on each rank, since the start of this step${more}` });
    const table = made("table", {}, caption, made("thead", {}, made("tr", {}, ...heading)), made("tbody", {}, ...rows.map(cells)));
    return [...(last ? [last] : []), made("div", { className: "linked", tabIndex: 0 }, table)];
  }

  // A rank's number, as a button if the page has its timeline of this step.
  toRank(rank, timeline, link) {
    const label = String(rank), other = this.data.timelines.find(one => this.data.ranks[one.rank][0] === label && one.step === timeline.step);
    if (!other || other === timeline) return label;
    const button = made("button", { type: "button", textContent: label, ariaLabel: `rank ${label}: show it in its timeline` });
    button.addEventListener("click", () => {
      this.rank = other.rank;
      this.show();
      const slice = this.timeline.sliceOf(link);
      if (slice) this.timeline.goTo(slice);
      this.timeline.canvas.focus();
    });
    return button;
  }

  // Time by category beside that of the other ranks in this step.
  against(times) {
    const others = this.data.times.filter((_, rank) => rank !== this.rank).map(steps => steps[this.step]).filter(Boolean);
    const entries = this.data.categories.map(([, label], place) => {
      const unit = this.data.unit_ns, own = times[place] * unit, usual = others.length ? middle(others.map(other => other[place])) * unit : null;
      const compared = usual === null ? "" : ` (${own < usual ? "−" : "+"}${duration(Math.abs(own - usual))})`;
      return own || usual ? `${label} ${duration(own)}${compared}` : null;
    });
    const than = others.length === 1 ? "than the other rank" : "than the median of the other ranks";
    return made("p", { className: "against", textContent: `${entries.filter(Boolean).join(", ")}${others.length ? `; in brackets: more or less ${than} in this step` : ""}.` });
  }

  // The command that opens the trace in Perfetto, at what the timeline shows.
  command(timeline) {
    const known = /^[\d:]+$/.test(this.data.steps[this.step]), step = known ? this.data.steps[this.step] : "";
    const [path, file] = timeline?.trace ?? this.data.traces[this.rank];
    if (!path) return made("p", { className: "faint", textContent: "This rank has several traces: perfkit view opens one of them." });
    const code = made("code"), copy = made("button", { type: "button", textContent: "Copy" }), link = this.served(file);
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    });
    this.follow = span => {
      code.textContent = `perfkit view ${path}${step && ` --step ${step}`}${span && ` --at ${span}`}${step || span ? this.data.step_marker : ""}`;
      copy.textContent = "Copy";
      if (link) link.search = new URLSearchParams({ trace: file, ...(step && { step }), ...(span && { at: span }) });
    };
    this.follow("");
    return made("p", { className: "command" }, code, " ", copy, " opens it in Perfetto", ...(link ? [". ", link] : []));
  }

  // In a page of `perfkit serve`: a link that opens the trace.
  served(file) {
    const key = location.protocol === "http:" && location.pathname.match(/\/report\/(\w+)$/)?.[1];
    if (!key || document.querySelectorAll(".explorer").length > 1) return null;
    return made("a", { href: `../perfetto/${key}`, target: "_blank", rel: "noopener", textContent: "Open it" });
  }

  // ---- from the rows of tables ----

  // The longest slice of a name in the page's timelines.
  longestDrawn(name) {
    let found = null;
    for (const timeline of this.data.timelines) {
      const number = timeline.names.indexOf(name);
      if (number < 0) continue;
      for (const { spans } of timeline.rows) {
        for (let at = 0; at < spans.length; at += 3) {
          const ns = spans[at + 1] * timeline.unit_ns;
          if (spans[at + 2] === number && ns > (found?.ns ?? 0)) found = { timeline, ns };
        }
      }
    }
    return found?.timeline ?? null;
  }

  placeOf({ rank, step }) { return [this.data.ranks.findIndex(([label]) => label === rank), this.data.steps.indexOf(step)]; }

  // Whether the page can lead to an instance: it has its rank and step, or a slice of its name.
  knows(instance) { return this.placeOf(instance).every(place => place >= 0) || this.longestDrawn(instance.name) !== null; }

  // Show the longest instance of a table's row: in its timeline, otherwise the longest in those that the page has.
  goTo(instance) {
    let [rank, step] = this.placeOf(instance);
    const known = rank >= 0 && step >= 0, own = known && this.data.timelines.find(one => one.rank === rank && one.step === step);
    const drawn = own || this.longestDrawn(instance.name);
    if (drawn) ({ rank, step } = drawn);
    Object.assign(this, { rank, step });
    this.proposed.clear();
    this.show();
    const begins = instance.at_ns === null ? "" : `, ${duration(instance.at_ns)} after the step's start`;
    const where = known ? `: the ${instance.what} is ${duration(instance.ns)}, on rank ${instance.rank} in step ${instance.step}${begins}` : "";
    const which = drawn && !own ? `${known ? "; " : ": "}the longest in the timelines of this page is chosen below` : "";
    this.root.querySelector(".chosen").prepend(made("p", { className: "found", textContent: `${instance.name}${where}${which}.` }));
    if (drawn) {
      const slice = this.timeline.nearest(instance.name, own ? instance.at_ns : null, instance.inside);
      if (slice) this.timeline.goTo(slice);
      this.timeline.canvas.focus({ preventScroll: true });
    } else if (instance.at_ns !== null && instance.ns) {
      this.follow?.(timeSpan(Math.max(instance.at_ns - 2 * instance.ns, 0), instance.at_ns + 3 * instance.ns));
    }
    this.root.querySelector(".chosen").scrollIntoView({ block: "start" });
  }

  // A button in the first cell of each row that the page can lead from.
  addLinks() {
    const part = this.root.closest("section, details");
    part?.querySelectorAll("tr[data-at]").forEach(row => {
      const instance = JSON.parse(row.dataset.at);
      if (!this.knows(instance)) return;
      const button = made("button", { type: "button", className: "find", textContent: "→", title: "show it in the timeline", ariaLabel: `Show ${instance.name} in the timeline` });
      button.addEventListener("click", () => this.goTo(instance));
      row.cells[0].append(" ", button);
    });
  }

  otherTimelines() {
    if (!this.data.timelines.length) return made("p", { className: "faint", textContent: this.data.no_timelines });
    const buttons = this.data.timelines.map(one => {
      const button = made("button", { type: "button", textContent: `rank ${this.data.ranks[one.rank][0]}, step ${this.data.steps[one.step]}` });
      button.addEventListener("click", () => { this.rank = one.rank; this.step = one.step; this.show(); });
      return button;
    });
    return made("p", { className: "faint" }, "The page has no timeline of this step, but of: ", ...buttons.flatMap(button => [button, " "]));
  }
}

document.querySelectorAll(".explorer").forEach(root => new Explorer(root).addLinks());
