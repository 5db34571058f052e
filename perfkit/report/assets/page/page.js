"use strict";
// Of several runs each is folded: a link to one unfolds it, and printing unfolds all.

function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
addEventListener("hashchange", unfold);
addEventListener("beforeprint", () => document.querySelectorAll("main > details").forEach(run => { run.open = true; }));
unfold();
