// Drawing: lines as SVG, the heat map on a canvas. Colours come from the style sheet or are blue to orange, which the common
// kinds of colour blindness tell apart; lines differ in their dashes too.

const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** The next of 1, 2, 5, 10 ... that is not below. */
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= value * 0.9999) ?? value;
}

const HEIGHT = 108, LEFT = 44, BOTTOM = 16, TOP = 6;

/** series: [{name, values}], values as long as times (seconds, the last is now); `least` is the smallest top of the axis. */
export function lineChart(box, times, series, { format, least, base = 0 }) {
  const width = Math.max(box.clientWidth, 120);
  const known = series.flatMap((s) => s.values).filter(Number.isFinite);
  const top = niceTop(Math.max(least, ...known));
  const age = times[times.length - 1] - times[0];
  const [span, begin] = [[60, "1 min ago"], [120, "2 min ago"], [300, "5 min ago"]].find(([seconds]) => seconds >= age) ?? [300, "5 min ago"];
  const x = (time) => LEFT + (width - LEFT) * (1 - (times[times.length - 1] - time) / span);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - base) / (top - base));
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  for (const value of [base, (base + top) / 2, top]) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: width, y1: y(value), y2: y(value) }));
    svg.append(shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  svg.append(shape("text", { x: LEFT, y: HEIGHT - 2 }, begin));
  svg.append(shape("text", { x: width, y: HEIGHT - 2, "text-anchor": "end" }, "now"));
  series.forEach(({ values }, i) => {
    let run = [];
    const flush = () => {
      if (run.length > 0) svg.append(shape("polyline", { class: `line-${i}`, points: run.join(" ") }));
      run = [];
    };
    values.forEach((value, at) => {
      if (Number.isFinite(value)) run.push(`${x(times[at]).toFixed(1)},${y(Math.min(value, top)).toFixed(1)}`);
      else flush();
    });
    flush();
  });
  const legend = document.createElement("div");
  legend.className = "legend";
  const last = series.map(({ name, values }) => {
    const value = values[values.length - 1];
    return `${name} ${Number.isFinite(value) ? format(value) : "–"}`;
  });
  series.forEach((_, i) => {
    const entry = document.createElement("span");
    const sample = shape("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" });
    sample.append(shape("polyline", { class: `line-${i}`, points: "0,4 22,4" }));
    entry.append(sample, last[i]);
    legend.append(entry);
  });
  svg.setAttribute("aria-label", `Over time; now: ${last.join(", ")}`);
  box.replaceChildren(svg, legend);
}

const SCALES = {
  light: [[31, 98, 181], [236, 239, 243], [179, 79, 0]],
  dark: [[74, 144, 217], [36, 44, 54], [255, 170, 85]],
};
const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
const COLD = 2; // powers of two below an even share
const STEPS = 64; // colours on either side

/**
 * Colours of a load over the even share of its layer, from 1/4 or nothing, over 1, up to `most`, the load of an expert that
 * every token takes. NaN, a layer at rest, is none of them.
 */
export class HeatScale {
  constructor(most) {
    this.hot = Math.max(1, Math.log2(most));
    const [cold, even, hot] = SCALES[isDark() ? "dark" : "light"];
    const mixes = (end) => Array.from({ length: STEPS + 1 }, (_, step) => `rgb(${even.map((c, i) => Math.round(c + ((end[i] - c) * step) / STEPS)).join(",")})`);
    this.colds = mixes(cold);
    this.hots = mixes(hot);
  }

  /** null: no colour. */
  colour(ratio) {
    if (Number.isNaN(ratio)) return null;
    if (ratio < 1) return this.colds[ratio > 0 ? Math.min(STEPS, Math.round((-Math.log2(ratio) / COLD) * STEPS)) : STEPS];
    return this.hots[Math.min(STEPS, Math.round((Math.log2(ratio) / this.hot) * STEPS))];
  }

  /** Cold and hot take half of it each. */
  drawOn(canvas) {
    const pen = canvas.getContext("2d");
    for (let i = 0; i < canvas.width; ++i) {
      const at = (2 * i) / (canvas.width - 1) - 1;
      pen.fillStyle = this.colour(2 ** (at * (at < 0 ? COLD : this.hot)));
      pen.fillRect(i, 0, 1, canvas.height);
    }
  }
}

/** Rows of loads, [layer][expert] over the even share, and a bar for each layer's imbalance. Remembers its geometry for cellAt(). */
export class HeatMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.rows = [];
    this.chosen = null; // [layer, expert]
  }

  /** `most`: the largest load over an even share that there can be, number of experts / top k. */
  draw(rows, imbalances, most) {
    this.rows = rows;
    const colours = new HeatScale(most);
    const layers = rows.length, experts = Math.max(...rows.map((r) => r.length), 1);
    const width = this.canvas.clientWidth, scale = devicePixelRatio || 1;
    this.label = width > 520 ? 26 : 20;
    const bars = width > 520 ? 88 : 44;
    this.cell = [(width - this.label - bars) / experts, Math.max(6, Math.min(20, 340 / Math.max(layers, 1)))];
    const height = Math.ceil(this.cell[1] * layers);
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const gap = this.cell[0] > 5 && this.cell[1] > 7 ? 1 : 0;
    const style = getComputedStyle(this.canvas), atRest = style.getPropertyValue("--track");
    rows.forEach((row, l) =>
      row.forEach((ratio, e) => {
        pen.fillStyle = colours.colour(ratio) ?? atRest;
        pen.fillRect(this.label + e * this.cell[0], l * this.cell[1], Math.max(this.cell[0] - gap, 0.6), this.cell[1] - gap);
      }));
    pen.fillStyle = style.getPropertyValue("--quiet");
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const every = Math.ceil(12 / this.cell[1]);
    for (let l = 0; l < layers; l += every) pen.fillText(String(l), 0, (l + 0.5) * this.cell[1]);
    this.drawBars(pen, imbalances, width - bars + 8, bars - 8, style, most);
    if (!this.chosen) return;
    pen.strokeStyle = style.getPropertyValue("--text");
    pen.lineWidth = 2;
    const [l, e] = this.chosen;
    pen.strokeRect(this.label + e * this.cell[0], l * this.cell[1], Math.max(this.cell[0] - gap, 2), this.cell[1] - gap);
  }

  /** The layer's imbalance from 1, nothing, to `most`, full, in equal steps for equal factors; with its number where there is room. */
  drawBars(pen, imbalances, left, width, style, most) {
    const numbered = this.cell[1] >= 11 && width > 60;
    const room = numbered ? width - 32 : width;
    imbalances.forEach((value, l) => {
      const y = l * this.cell[1], height = Math.max(this.cell[1] - 2, 2);
      pen.fillStyle = style.getPropertyValue("--accent");
      pen.fillRect(left, y, value > 1 ? room * Math.min(1, Math.log(value) / Math.log(most)) : 0, height);
      pen.fillStyle = style.getPropertyValue("--text");
      if (numbered) pen.fillText(value > 0 ? value.toFixed(1) : "–", left + room + 6, y + this.cell[1] / 2);
    });
  }

  cellAt(x, y) {
    const l = Math.floor(y / this.cell[1]), e = Math.floor((x - this.label) / this.cell[0]);
    return this.rows[l]?.[e] === undefined ? null : [l, e];
  }

  move(dl, de) {
    const [l, e] = this.chosen ?? [0, -de];
    const layer = Math.max(0, Math.min(this.rows.length - 1, l + dl));
    this.chosen = [layer, Math.max(0, Math.min((this.rows[layer]?.length ?? 1) - 1, e + de))];
  }
}
