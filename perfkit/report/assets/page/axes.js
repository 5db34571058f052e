"use strict";
// Scales from values to pixels, and the ticks of an axis.

// Round steps of 1, 2 or 5 times a power of ten, about `count` of them between two values.
function roundTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = power * ([1, 2, 5].find(factor => factor * power >= rough) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - first + 1) }, (_, place) => (first + place) * step);
}

// Powers of ten; beside them 2 and 5 times each where there are few, and round steps where there would be hardly any.
function logTicks(low, high, count) {
  const powers = powersOfTen(low, high);
  if (powers.length > 2) return powers;
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const finer = Array.from({ length: to - from + 1 }, (_, place) => [1, 2, 5].map(factor => factor * 10 ** (from + place))).flat();
  const within = finer.filter(value => value >= low && value <= high);
  return within.length > 2 ? within : roundTicks(low, high, count);
}

function powersOfTen(low, high) {
  const from = Math.ceil(Math.log10(low) - 1e-9), to = Math.floor(Math.log10(high) + 1e-9);
  const every = Math.max(1, Math.ceil((to - from) / 6));
  return Array.from({ length: Math.max(0, Math.floor((to - from) / every) + 1) }, (_, place) => 10 ** (from + place * every));
}

// At most `most` of the values, evenly.
const thinned = (values, most) => values.filter((_, place) => place % Math.max(1, Math.ceil(values.length / most)) === 0);

// A scale: `at(value)` is a pixel, `ticks` are [pixel, label] pairs, `band` the width of a category.
function categoryScale(names, from, to, most) {
  const band = (to - from) / (names.length || 1), places = new Map(names.map((name, place) => [name, place]));
  const at = name => from + (places.get(name) + .5) * band;
  return { at, band, ticks: thinned(names, most).map(name => [at(name), name]), grid: false };
}

function numberScale(axis, values, from, to, most) {
  const log = axis.type === "log", f = log ? Math.log10 : value => value;
  let [low, high] = axis.range ?? extent(values, log, axis.rangemode === "tozero");
  if (high === low) high = log ? low * 10 : low + 1;
  const at = value => from + (f(value) - f(low)) / (f(high) - f(low)) * (to - from);
  const given = axis.tickvals?.map((value, place) => [value, axis.ticktext?.[place] ?? value]);
  const found = log ? logTicks(low, high, most) : roundTicks(low, high, most);
  const ticks = given ? thinned(given, most) : found.map(value => [value, tickLabel(value, axis)]);
  return { at, band: 0, ticks: ticks.map(([value, label]) => [at(value), String(label)]), grid: true };
}

function extent(values, log, fromZero) {
  const known = values.filter(value => Number.isFinite(value) && (!log || value > 0));
  const low = Math.min(...known), high = Math.max(...known);
  if (!known.length) return [1, 10];
  if (log) return [low / 1.3, high * 1.3];
  const room = (high - low || Math.abs(high) || 1) * .05;
  return [fromZero || (low >= 0 && low < high / 2) ? Math.min(0, low) : low - room, high + room];
}

function tickLabel(value, axis) {
  const prefixed = axis.exponentformat === "SI" || (axis.type === "log" && value >= 1000);
  const text = prefixed ? withPrefix(value, 3) : String(Number(value.toPrecision(6)));
  return axis.ticksuffix ? text + axis.ticksuffix : text.trimEnd();
}
