"use strict";
// Runs and tables are folded: a link to what is in one unfolds it, and printing unfolds all, and folds them again.

function unfold() {
  for (let part = document.getElementById(location.hash.slice(1)); part; part = part.parentElement) {
    if (part instanceof HTMLDetailsElement) part.open = true;
  }
}
addEventListener("hashchange", unfold);
unfold();

// Canvases take their colours from the page's: on paper it is light.
let unfolded = [];
function forPrint(begins) {
  document.documentElement.classList.toggle("printed", begins);
  if (begins) unfolded = [...document.querySelectorAll("details:not([open])")];
  unfolded.forEach(one => { one.open = begins; });
  if (begins) fitCharts.forEach(fit => fit());
  document.querySelectorAll(".timeline").forEach(({ timeline }) => timeline.draw());
}
addEventListener("beforeprint", () => forPrint(true));
addEventListener("afterprint", () => forPrint(false));
