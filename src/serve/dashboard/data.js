// Asking the server, and what follows from its answers: rates, quantiles, and load over a span of time.
// The formulas are those of docs/metrics.md.

const KEY = "switchyard-key";

export class Refused extends Error {
  constructor(status, code) {
    super(code);
    this.status = status;
    this.code = code;
  }
}

let key = null;
try {
  key = sessionStorage.getItem(KEY);
} catch {
  // Storage may be forbidden: then the key lives as long as the page.
}

/** False: no header can have it, so no server's key is like that. */
export function setKey(text) {
  try {
    new Headers({ Authorization: `Bearer ${text.trim()}` });
  } catch {
    return false;
  }
  key = text.trim();
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // As above.
  }
  return true;
}
export const hasKey = () => key !== null;

/** A server that is stopped, or a proxy that keeps the connection, must not look like one that answers. */
const LIMIT_MS = 5000;

/** Reading its body is under the same limit. Throws Refused when the server says no, else what fetch throws. */
export async function ask(path) {
  const answer = await fetch(path, { headers: key ? { Authorization: `Bearer ${key}` } : {}, cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS) });
  if (answer.ok) return answer;
  let code = "";
  try {
    code = (await answer.json()).error.code;
  } catch {
    // A proxy's own page: the status says enough.
  }
  throw new Refused(answer.status, code);
}

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"/g;

/** Prometheus text as name -> [{labels, value}]. */
export function parseMetrics(text) {
  const series = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) labels[name] = value;
    const value = match[3] === "+Inf" ? Infinity : Number(match[3]);
    if (!series.has(match[1])) series.set(match[1], []);
    series.get(match[1]).push({ labels, value });
  }
  return series;
}

export function sum(metrics, name, labels = {}) {
  let total = 0;
  for (const sample of metrics?.get(name) ?? [])
    if (Object.entries(labels).every(([key, value]) => sample.labels[key] === value)) total += sample.value;
  return total;
}

/** Sums by the values of one label, in order of appearance. */
export function byLabel(metrics, name, label) {
  const sums = new Map();
  for (const sample of metrics?.get(name) ?? [])
    sums.set(sample.labels[label], (sums.get(sample.labels[label]) ?? 0) + sample.value);
  return sums;
}

/** What a histogram gained between two scrapes: cumulative counts by upper bound. */
export function gained(now, before, name) {
  const early = new Map((before?.get(`${name}_bucket`) ?? []).map((s) => [JSON.stringify(s.labels), s.value]));
  const buckets = (now.get(`${name}_bucket`) ?? []).map((s) => ({
    bound: s.labels.le === "+Inf" ? Infinity : Number(s.labels.le),
    count: s.value - (early.get(JSON.stringify(s.labels)) ?? 0),
  }));
  const count = buckets.length ? buckets[buckets.length - 1].count : 0;
  return { buckets, count, sum: sum(now, `${name}_sum`) - sum(before, `${name}_sum`) };
}

/** As histogram_quantile of Prometheus: even inside a bucket; NaN when empty. */
export function quantile({ buckets, count }, q) {
  if (!(count > 0)) return NaN;
  const rank = q * count;
  const at = buckets.findIndex((b) => b.count >= rank);
  if (buckets[at].bound === Infinity) return at > 0 ? buckets[at - 1].bound : Infinity;
  const below = at > 0 ? buckets[at - 1].count : 0;
  const low = at > 0 ? buckets[at - 1].bound : 0;
  const inside = buckets[at].count - below;
  return inside > 0 ? low + ((buckets[at].bound - low) * (rank - below)) / inside : buckets[at].bound;
}

/**
 * Layers of /v1/moe/stats between two answers. Imbalance and experts touched are means over the layer's own steps, so that
 * between is the difference of their sums, and NaN without such a step; picks are differences.
 */
export function layersBetween(now, before) {
  return now.layers.map((layer, l) => {
    const early = before?.layers[l];
    const load = layer.load.map((picks, e) => picks - (early?.load[e] ?? 0));
    const steps = layer.steps - (early?.steps ?? 0);
    const mean = (field) => (steps > 0 ? (layer[field] * layer.steps - (early ? early[field] * early.steps : 0)) / steps : NaN);
    return {
      load,
      picks: layer.assignments - (early?.assignments ?? 0),
      dropped: layer.dropped - (early?.dropped ?? 0),
      imbalance: mean("imbalance"),
      touched: mean("experts_touched"),
    };
  });
}

/** Answers of the last minute, the oldest that is at least so many seconds old, and the numbers that charts keep longer. */
export class History {
  constructor() {
    this.snapshots = [];
    this.points = [];
  }

  add(snapshot) {
    const last = this.snapshots[this.snapshots.length - 1];
    // Another server, or counters that were set back: begin anew.
    if (last && (snapshot.stats.start_time !== last.stats.start_time || snapshot.stats.steps < last.stats.steps)) this.snapshots = this.points = [];
    this.snapshots = [...this.snapshots, snapshot].filter((s) => snapshot.time - s.time <= 65);
  }

  /** The answer that a span of so many seconds begins with; null: the server's start. */
  before(seconds) {
    if (seconds === "all") return null;
    const now = this.snapshots[this.snapshots.length - 1].time;
    let found = this.snapshots[0];
    for (const s of this.snapshots) if (now - s.time >= Number(seconds) - 0.5) found = s;
    return found;
  }

  addPoint(point) {
    this.points = [...this.points, point].filter((p) => point.time - p.time <= 300);
  }

  /** Nobody knows what went on: charts break their lines here. */
  addGap(time) {
    const last = this.points[this.points.length - 1];
    if (last) this.addPoint(Object.fromEntries(Object.keys(last).map((name) => [name, name === "time" ? time : NaN])));
  }
}
