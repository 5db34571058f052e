"use strict";
// Numbers and texts as the charts' specifications ask for them: the part of plotly's templates that perfkit uses.

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

// `digits` significant digits without trailing zeros, with an SI prefix: 1.25 G.
function withPrefix(value, digits = 4) {
  if (!value) return "0 ";
  const [factor, prefix] = PREFIXES.find(([least]) => Math.abs(value) >= least * .9999999) ?? PREFIXES.at(-1);
  return `${Number((value / factor).toPrecision(digits))} ${prefix}`;
}

// A value in d3's notation: `.6~g`, `.4~s` or `.1f`.
function formatted(value, notation) {
  if (typeof value !== "number") return String(value);
  const [, digits, kind] = /^\.(\d+)~?([gsf])$/.exec(notation ?? ".6~g") ?? [null, "6", "g"];
  if (kind === "f") return value.toFixed(Number(digits));
  return kind === "s" ? withPrefix(value, Number(digits)) : String(Number(value.toPrecision(Number(digits))));
}

// The lines of a text whose `<br>` and entities are HTML, as plain text: it is never parsed as HTML.
function plainLines(text) {
  return String(text).split("<br>").map(line => line.replaceAll("&lt;", "<").replaceAll("&amp;", "&"));
}

// What a hover template tells of one mark: its lines, the name of its series last.
function told(template, values) {
  const filled = template.replace(/%\{(\w+)(?::([^}]+))?\}/g, (_, key, notation) => formatted(values[key] ?? "", notation));
  const [, body, extra] = /^([^]*?)(?:<extra>([^]*)<\/extra>)?$/.exec(filled);
  return [...plainLines(body), ...(extra ? plainLines(extra) : [])];
}

// A duration with three or four digits: 12.34 ms.
function duration(ns) {
  const [factor, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([least]) => Math.abs(ns) >= least) ?? [1, "ns"];
  return `${Number((ns / factor).toPrecision(4))} ${unit}`;
}

// A span (ns) as `perfkit view --at` takes it, to a thousandth of its length.
function timeSpan(from, to) {
  const digits = Math.min(Math.max(3 - Math.floor(Math.log10((to - from) / 1e6)), 0), 6);
  return [from, to].map(ns => `${Number((ns / 1e6).toFixed(digits))}ms`).join("-");
}
