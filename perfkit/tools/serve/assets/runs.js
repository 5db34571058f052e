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

  const cell = (text, kind) => {
    const made = document.createElement("td");
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
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
    const made = document.createElement("td");
    made.append(input);
    return made;
  };
  const link = (run) => {
    const made = document.createElement("td");
    const anchor = document.createElement("a");
    anchor.href = `run/${run.key}`;
    anchor.textContent = run.name;
    made.append(anchor);
    return made;
  };
  const row = (run) => {
    const made = document.createElement("tr");
    made.append(
      box(run), link(run), cell(run.state || "–", run.state), cell(run.what, "what"),
      cell(run.ranks || "–", "number"), cell(run.steps || "–", "number"), cell(duration(run.step_ns), "number"),
      cell(run.started.replace("T", " ").replace(/[+]00:00$/, " UTC") || "–"),
      cell(run.changed_s ? ago(Date.now() / 1000 - run.changed_s) : "–"),
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
