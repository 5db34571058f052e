"use strict";
// Flame graphs: each frame lies below its caller, as wide as its share. A click or Enter makes a frame the whole width,
// below its callers; Escape shows all. Frames are found by their name.

const FRAME_HEIGHT = 20, NARROWEST = .4;  // in pixels

class FlameGraph {
  constructor(root) {
    this.root = root;
    this.element = root.querySelector(".flame");
    this.graphs = JSON.parse(root.querySelector("script").textContent).map(graph => ({ ...graph, frames: framesOf(graph) }));
    this.controls();
    this.use(this.graphs[0]);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  controls() {
    const choose = made("select", { ariaLabel: "Flame graph" }), all = made("button", { type: "button", textContent: "show all" });
    this.graphs.forEach((graph, place) => choose.add(new Option(graph.by, place)));
    choose.addEventListener("change", () => this.use(this.graphs[choose.value]));
    all.addEventListener("click", () => this.zoom(this.graph.frames[0]));
    this.search = made("input", { type: "search", placeholder: "find", ariaLabel: "Find frames by name" });
    this.search.addEventListener("input", () => this.draw());
    [this.title, this.found] = [made("p", { className: "of-flames" }), made("span")];
    this.found.setAttribute("role", "status");
    this.element.before(this.title);
    this.root.querySelector(".controls").replaceChildren(this.found, " ", this.search, ...(this.graphs.length > 1 ? [" ", choose] : []), " ", all);
  }

  // Frames whose name contains what is looked for stand out; they take their time, but for those within others of them.
  find() {
    const wanted = this.search.value.trim().toLowerCase();
    this.matching = new Set(wanted ? this.graph.frames.slice(1).filter(one => one.name.toLowerCase().includes(wanted)) : []);
    const within = one => { for (let at = one.outer; at; at = at.outer) if (this.matching.has(at)) return true; return false; };
    const ns = [...this.matching].reduce((sum, one) => sum + (within(one) ? 0 : one.ns), 0);
    this.found.textContent = wanted ? `${duration(ns)}, ${(100 * ns / this.graph.total_ns).toFixed(1)} %` : "";
    this.element.classList.toggle("searched", wanted !== "");
  }

  use(graph) {
    this.graph = graph;
    this.chosen = null;
    this.title.textContent = graph.title;
    const longest = graph.frames.filter(one => one.depth === 1).slice(0, 5).map(one => `${one.name}, ${duration(one.ns)}`);
    this.element.setAttribute("aria-label", `Flame graph: ${graph.title}, ${duration(graph.total_ns)}. Outermost: ${longest.join("; ")}`);
    const left = graph.left_out ? ` ${graph.left_out.toLocaleString("en")} frames of less than a thousandth are left out.` : "";
    this.root.querySelector("p.faint").textContent = `Click a frame to enlarge it. Keys: arrows choose, Enter enlarges, Escape shows all.${left}`;
    this.zoom(graph.frames[0]);
  }

  zoom(frame) {
    this.shown = frame;
    this.draw();
  }

  draw() {
    const width = this.element.clientWidth, { shown } = this;
    if (!width) return;
    this.find();
    this.callers = [];
    for (let outer = shown.outer; outer; outer = outer.outer) this.callers.unshift(outer);
    const inside = this.graph.frames.filter(one => one.from >= shown.from && one.from + one.ns <= shown.from + shown.ns && one.depth >= shown.depth);
    const boxes = inside.map(one => [one, (one.from - shown.from) / shown.ns, one.ns / shown.ns]).filter(([, , share]) => share * width > NARROWEST);
    const drawn = [...this.callers.map(one => [one, 0, 1]), ...boxes];
    this.boxes = new Map(drawn.map(([one, from, share]) => [one, this.box(one, from, share, width)]));
    this.element.replaceChildren(...this.boxes.values());
    this.element.style.height = `${(1 + Math.max(...drawn.map(([one]) => one.depth))) * FRAME_HEIGHT}px`;
  }

  box(frame, from, share, width) {
    const [colour, dark] = frame.depth ? LANE_COLOURS[frame.lane] : ["var(--band)", null];
    const box = made("div", { className: `frame${this.callers.includes(frame) ? " caller" : ""}${frame === this.chosen ? " chosen" : ""}${this.matching.has(frame) ? " matching" : ""}` });
    Object.assign(box.style, { left: `${100 * from}%`, width: `${100 * share}%`, top: `${frame.depth * FRAME_HEIGHT}px`, background: colour, color: dark === null ? "var(--ink)" : dark ? "#000" : "#fff" });
    // Of a function's file the name is enough here: pointing at the frame shows all.
    if (share * width > LEAST_TEXT) box.textContent = `${frame.name.replace(/  .*\//, "  ")} · ${duration(frame.ns)}`;
    box.frame = frame;
    return box;
  }

  tell(frame) {
    const share = `${(100 * frame.ns / this.graph.total_ns).toFixed(1)} %`, own = frame.ns - frame.inner.reduce((sum, one) => sum + one.ns, 0);
    return [frame.name, `${duration(frame.ns)} per step, ${share}${frame.inner.length && own > 0 ? `, ${duration(own)} of it not in what is below` : ""}`];
  }

  listen() {
    const { element } = this;
    element.addEventListener("click", event => { if (event.target.frame) this.zoom(event.target.frame); });
    element.addEventListener("pointermove", event => event.target.frame ? showHint(element, this.tell(event.target.frame), event.clientX, event.clientY) : hideHint(event));
    element.addEventListener("pointerleave", hideHint);
    element.addEventListener("blur", hideHint);
    element.addEventListener("keydown", event => this.key(event));
  }

  key(event) {
    const at = this.chosen ?? this.shown, beside = at.outer?.inner ?? [at], place = beside.indexOf(at);
    const acts = {
      ArrowDown: () => this.choose(at.inner[0]), ArrowUp: () => this.choose(at.outer), ArrowRight: () => this.choose(beside[place + 1]),
      ArrowLeft: () => this.choose(beside[place - 1]), Enter: () => this.zoom(at), Escape: () => { hideHint(event); this.zoom(this.graph.frames[0]); },
    };
    if (!(event.key in acts) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  choose(frame) {
    if (!frame) return;
    this.chosen = frame;
    if (!this.boxes.has(frame)) this.shown = frame.outer ?? frame;
    this.draw();
    const edge = (this.boxes.get(frame) ?? this.element).getBoundingClientRect();
    showHint(this.element, this.tell(frame), edge.left, edge.bottom);
  }
}

// All frames below one for the whole; a frame begins where the one before it in the same caller ends.
function framesOf({ frames: flat, names, lanes, total_ns: total }) {
  const whole = { name: "all", ns: total, depth: 0, from: 0, inner: [], outer: null }, open = [whole], all = [whole];
  for (let at = 0; at < flat.length; at += 3) {
    const depth = flat[at] + 1, ns = flat[at + 2], outer = open[depth - 1], last = outer.inner.at(-1);
    const frame = { name: names[flat[at + 1]], lane: lanes[flat[at + 1]], ns, depth, from: last ? last.from + last.ns : outer.from, inner: [], outer };
    outer.inner.push(frame);
    open[depth] = frame;
    all.push(frame);
  }
  return all;
}

document.querySelectorAll(".flames").forEach(root => new FlameGraph(root));
