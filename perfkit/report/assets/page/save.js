"use strict";
// Saves a chart as it is drawn, as SVG or PNG, without a network: for slides, in light colours on white.

const PIXELS = 2, PAINTED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "font-family"];

// The chart as it is drawn, with its title and legend, in light colours on white; it needs no page.
function savedPicture(figure) {
  const drawn = figure.querySelector(".plot > svg"), width = drawn.clientWidth, pad = 16;
  document.documentElement.classList.add("printed");
  const copy = drawn.cloneNode(true), marks = [...drawn.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((one, place) => { inlineStyle(one, marks[place]); one.removeAttribute("class"); });
  const whole = svg("svg", { xmlns: SVG });
  whole.append(svg("defs", {}, ...[...document.querySelectorAll(".definitions pattern")].map(inlinedPattern)));
  const background = svg("rect", { width: "100%", height: "100%", fill: "#fff" });
  whole.append(background);
  let y = pad;
  for (const line of wrappedText(figure.querySelector("figcaption").firstChild.textContent.trim(), width / 8.5)) {
    y += 18;
    whole.append(svg("text", { x: pad, y, "font-size": 15, "font-weight": 600, "font-family": "system-ui, sans-serif", fill: "#1b1f24" }, line));
  }
  copy.setAttribute("x", pad);
  copy.setAttribute("y", y += 10);
  whole.append(copy);
  y += Number(drawn.getAttribute("height")) + 6;
  let x = pad + 44;
  for (const entry of figure.querySelectorAll(".legend li")) {
    const swatches = [...entry.querySelectorAll("svg")], label = entry.textContent.trim(), wide = 34 + label.length * 8;
    if (x + wide > width && x > pad + 44) { x = pad + 44; y += 20; }
    for (const one of swatches) {
      const key = one.cloneNode(true);
      key.setAttribute("x", x);
      key.setAttribute("y", y);
      whole.append(key);
    }
    whole.append(svg("text", { x: x + 24, y: y + 10, "font-size": 13, "font-family": "system-ui, sans-serif", fill: "#1b1f24" }, label));
    x += wide;
  }
  document.documentElement.classList.remove("printed");
  const size = { width: width + 2 * pad, height: y + 28 };
  for (const [key, value] of Object.entries({ ...size, viewBox: `0 0 ${size.width} ${size.height}` })) whole.setAttribute(key, value);
  return { text: new XMLSerializer().serializeToString(whole), ...size };
}

function inlineStyle(copy, drawn) {
  const style = getComputedStyle(drawn);
  for (const name of PAINTED) copy.setAttribute(name, style.getPropertyValue(name));
}

function inlinedPattern(pattern) {
  const copy = pattern.cloneNode(true);
  copy.querySelectorAll("*").forEach((one, place) => inlineStyle(one, pattern.querySelectorAll("*")[place]));
  return copy;
}

function wrappedText(text, most) {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    if (lines.at(-1) && lines.at(-1).length + word.length > most) lines.push("");
    lines.push(`${lines.pop()} ${word}`.trim());
  }
  return lines;
}

function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function savePng({ text, width, height }, name) {
  const image = new Image(), canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width * PIXELS, height * PIXELS];
  image.addEventListener("load", () => {
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(blob => saveBlob(blob, name), "image/png");
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function addSaving(figure) {
  const caption = figure.querySelector("figcaption"), title = caption.firstChild.textContent.trim();
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 80), controls = document.createElement("span");
  controls.className = "save";
  for (const kind of ["SVG", "PNG"]) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: kind });
    button.setAttribute("aria-label", `Save as ${kind}: ${title}`);
    button.addEventListener("click", () => {
      const made = savedPicture(figure);
      kind === "SVG" ? saveBlob(new Blob([made.text], { type: "image/svg+xml" }), `${name}.svg`) : savePng(made, `${name}.png`);
    });
    controls.append(" ", button);
  }
  caption.append(controls);
}
