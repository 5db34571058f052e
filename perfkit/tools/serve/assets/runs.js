"use strict";
(() => {
  const POLL_MS = 2000;
  const form = document.getElementById("compare");
  const status = document.getElementById("status");
  const body = form.querySelector("tbody");
  const button = form.querySelector("button");
  const chosen = []; // keys of the ticked runs, the earlier one first

  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const duration = (ns) => {
    if (ns === null) return "–";
    const [size, unit] = UNITS.find(([size]) => ns >= size) ?? [1, "ns"];
    return `${Number((ns / size).toPrecision(3))} ${unit}`;
  };
  const ago = (seconds) => {
    if (seconds < 60) return "now";
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
    return `${Math.floor(seconds / 86400)} days ago`;
  };

  const cell = (kind, ...content) => {
    const made = document.createElement("td");
    made.setAttribute("role", "cell");
    made.className = kind;
    made.append(...content);
    return made;
  };
  const small = (text, kind = "") => Object.assign(document.createElement("small"), { textContent: text, className: kind });

  const SVG = "http://www.w3.org/2000/svg";
  const LEAST_SPREAD = .25; // as in reports: smaller differences do not use the whole height
  const spark = (times) => {
    if (times.length < 2) return [];
    const low = Math.min(...times), high = Math.max(...times, low * (1 + LEAST_SPREAD));
    const points = times.map((ns, place) => `${(100 * place / (times.length - 1)).toFixed(1)} ${(20 - 20 * (ns - low) / (high - low || 1)).toFixed(1)}`);
    const made = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
    const what = `The newest ${times.length} steps: ${duration(low)} to ${duration(Math.max(...times))}`;
    for (const [name, value] of Object.entries({ viewBox: "0 0 100 20", preserveAspectRatio: "none", class: "spark", role: "img", "aria-label": what })) made.setAttribute(name, value);
    path.setAttribute("d", `M${points.join("L")}`);
    made.append(path);
    return [made];
  };

  // What takes the step, and the answer: analysed when the row is in view, or a screen below.
  const answers = new Map();
  const keys = [...document.querySelectorAll(".keys li")]; // shown once a bar has the colour
  const version = (run) => `${run.key} ${run.state} ${run.traces}`;
  const answer = (run) => {
    const found = answers.get(version(run));
    if (found === undefined) return cell("answer faint", "…");
    if (found === null) return cell("answer faint", "nothing to analyse yet");
    const bar = document.createElement("div");
    bar.className = "shares";
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", `Where the step goes: ${found.rows.map(([label, , , percent]) => `${label} ${percent}`).join(", ")}`);
    bar.append(...found.rows.map(([label, time, share, percent, colour, pattern]) => {
      const part = document.createElement("span");
      Object.assign(part.style, { backgroundColor: colour, flex: String(share) });
      part.dataset.pattern = pattern;
      part.title = `${label}: ${time}, ${percent}`;
      const key = keys.find((one) => one.dataset.colour === colour);
      if (key) key.hidden = false;
      return part;
    }));
    const verdict = Object.assign(document.createElement("span"), { textContent: found.verdict, className: found.tone });
    return cell("answer", ...(found.rows.length ? [bar] : []), verdict);
  };
  let asking = false;
  const ask = async () => {
    if (asking) return;
    const seen = (row) => { const { top, bottom } = row.getBoundingClientRect(); return bottom > 0 && top < 2 * innerHeight; };
    const next = runs.find((run, place) => !answers.has(version(run)) && body.rows[place] && seen(body.rows[place]));
    if (!next) return;
    asking = true;
    try {
      const got = await fetch(`summary/${next.key}`);
      answers.set(version(next), got.ok ? await got.json() : null);
      draw();
    } catch {
      return; // the server has ended
    } finally {
      asking = false;
    }
    ask();
  };
  addEventListener("scroll", ask);
  addEventListener("resize", ask);

  const box = (run) => {
    const input = document.createElement("input");
    input.type = "checkbox";
    input.value = run.key;
    input.checked = chosen.includes(run.key);
    input.setAttribute("aria-label", `Compare ${run.name}`);
    input.addEventListener("change", () => {
      if (input.checked) chosen.push(run.key);
      else chosen.splice(chosen.indexOf(run.key), 1);
      if (chosen.length > 2) chosen.shift();
      for (const other of body.querySelectorAll("input")) other.checked = chosen.includes(other.value);
      button.disabled = chosen.length !== 2;
    });
    return cell("box", input);
  };
  const link = (run) => {
    const anchor = document.createElement("a");
    anchor.href = `run/${run.key}`;
    anchor.textContent = run.name;
    return cell("run", anchor, small(run.what, "what"));
  };
  const count = (what, number) => {
    const unit = Object.assign(document.createElement("span"), { className: "unit", textContent: ` ${number === 1 ? what.slice(0, -1) : what}` });
    return cell(`number ${what}${number ? "" : " unknown"}`, String(number || "–"), unit);
  };
  const row = (run) => {
    const made = document.createElement("tr");
    made.setAttribute("role", "row");
    const time = document.createElement("b");
    time.textContent = duration(run.step_ns);
    const started = run.started.replace("T", " ").replace(/[+]00:00$/, " UTC") || "–";
    const changed = run.changed_s ? `changed ${ago(Date.now() / 1000 - run.changed_s)}` : "";
    made.append(
      box(run), link(run), cell(`state ${run.state}`, run.state || "–"), answer(run), cell("step", time, ...spark(run.newest_ns)),
      count("ranks", run.ranks), count("steps", run.steps), cell("when", started, small(changed)),
    );
    return made;
  };

  let runs = [];
  let drawn = "";
  const draw = () => {
    const focused = document.activeElement?.getAttribute("aria-label");
    body.replaceChildren(...runs.map(row));
    if (focused) [...body.querySelectorAll("input")].find((it) => it.getAttribute("aria-label") === focused)?.focus();
    button.disabled = chosen.length !== 2;
  };
  const load = async () => {
    try {
      const answer = await fetch("runs.json");
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const text = await answer.text();
      runs = JSON.parse(text);
      for (const key of [...chosen]) if (!runs.some((run) => run.key === key)) chosen.splice(chosen.indexOf(key), 1);
      const minute = Math.floor(Date.now() / 60000);
      if (text + minute !== drawn) draw();
      drawn = text + minute;
      ask();
      status.textContent = runs.length ? `${runs.length} run${runs.length === 1 ? "" : "s"}` : "No runs yet.";
    } catch {
      status.textContent = "perfkit serve has ended, or a folder is gone.";
    }
    setTimeout(load, POLL_MS);
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [before, after] = chosen.map((key) => runs.find((run) => run.key === key))
      .sort((one, other) => (one.started < other.started ? -1 : 1));
    location.assign(`compare?before=${before.key}&after=${after.key}`);
  });
  load();
})();
