// The page: asks once a second (every five while nobody looks), and shows what came.
import { History, Refused, ask, byLabel, gained, hasKey, layersBetween, parseMetrics, quantile, setKey, sum } from "./data.js";
import { HeatMap, HeatScale, lineChart } from "./charts.js";

const id = (name) => document.getElementById(name);
const show = (name, text) => {
  if (id(name).textContent !== text) id(name).textContent = text;
};

/** So many digits that count, never in the form 1.0e+3. */
const digits = (value, count = 3) => String(Number(value.toPrecision(count)));
const number = (value) => {
  if (!Number.isFinite(value)) return "–";
  if (value >= 999.5e6) return `${digits(value / 1e9)}G`;
  if (value >= 999.5e3) return `${digits(value / 1e6)}M`;
  if (value >= 1e4) return `${digits(value / 1e3)}k`;
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toPrecision(3);
};
const time = (seconds, precision = 3) => {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds >= 0.9995) return `${digits(seconds, precision)} s`;
  return seconds >= 0.9995e-3 ? `${digits(seconds * 1e3, precision)} ms` : `${digits(seconds * 1e6, precision)} µs`;
};
/** A quantile, as far as its buckets tell: two digits, and no number below the first bound or above the last. */
const timeAt = (histogram, q) => {
  const value = quantile(histogram, q), finite = histogram.buckets.filter((bucket) => Number.isFinite(bucket.bound));
  if (!Number.isFinite(value)) return "–";
  if (value <= finite[0].bound) return `< ${time(finite[0].bound, 2)}`;
  const last = finite[finite.length - 1].bound;
  return value >= last ? `> ${time(last, 2)}` : time(value, 2);
};
const percent = (share) => (Number.isFinite(share) ? `${(share * 100).toFixed(share > 0 && share < 0.1 ? 2 : 1)}%` : "–");
const ratio = (value, digits = 2) => (value > 0 ? value.toFixed(digits) : "–");

let history = new History();
let span = "60";
const heat = new HeatMap(id("heat"));
let shownLayers = [];

// ---- states

const NAMES = { model_loading: "loading", draining: "draining", engine_dead: "engine dead" };
function setState(state, text) {
  id("state").dataset.state = state;
  show("state", text);
  id("locked").hidden = state !== "locked";
  for (const part of ["view", "window", "footer"]) id(part).hidden = state === "locked";
  id("view").classList.toggle("old", state !== "ready" && history.points.length > 0);
}

/** How old the numbers are, when they are not new. */
function showAge() {
  const last = history.snapshots[history.snapshots.length - 1];
  const age = last ? performance.now() / 1000 - last.time : 0;
  show("age", age > 7 ? `last answer ${Math.round(age)} s ago` : "");
  id("view").classList.toggle("old", age > 7 || (history.points.length > 0 && id("state").dataset.state !== "ready"));
}

// ---- what is shown

/** Seconds that a rate is taken over: a little more than two answers, so that one number does not jump. */
const RATE_SECONDS = 5;

function pointOf(now) {
  const early = history.before(RATE_SECONDS);
  const seconds = now.time - early.time;
  const rate = (name, labels) =>
    seconds > 0 ? (sum(now.metrics, name, labels) - sum(early.metrics, name, labels)) / seconds : NaN;
  const layers = layersBetween(now.stats, early.stats).filter((layer) => layer.picks > 0);
  const imbalances = layers.map((layer) => layer.imbalance).filter(Number.isFinite);
  const picks = layers.reduce((total, layer) => total + layer.picks, 0);
  return {
    time: now.time,
    output: rate("switchyard_generation_tokens_total"),
    prompt: rate("switchyard_prompt_tokens_total"),
    mean: imbalances.length ? imbalances.reduce((a, b) => a + b) / imbalances.length : NaN,
    worst: imbalances.length ? Math.max(...imbalances) : NaN,
    dropped: picks > 0 ? layers.reduce((total, layer) => total + layer.dropped, 0) / picks : NaN,
    running: sum(now.metrics, "switchyard_requests_running"),
    waiting: sum(now.metrics, "switchyard_requests_waiting"),
  };
}

function showTiles(now, before, point) {
  show("output-rate", number(point.output));
  show("prompt-rate", number(point.prompt));
  show("running", number(point.running));
  show("waiting", number(point.waiting));
  for (const [tile, name] of [["ttft", "switchyard_time_to_first_token_seconds"], ["itl", "switchyard_inter_token_latency_seconds"]]) {
    const histogram = gained(now.metrics, before?.metrics, name);
    show(`${tile}-p50`, timeAt(histogram, 0.5));
    show(`${tile}-p99`, timeAt(histogram, 0.99));
  }
  const busy = shownLayers.map((layer) => layer.imbalance).filter(Number.isFinite);
  show("imbalance-mean", ratio(busy.length ? busy.reduce((a, b) => a + b) / busy.length : 0));
  show("imbalance-worst", ratio(busy.length ? Math.max(...busy) : 0));
  const picks = shownLayers.reduce((total, layer) => total + layer.picks, 0);
  const dropped = shownLayers.reduce((total, layer) => total + layer.dropped, 0);
  const share = picks > 0 ? dropped / picks : NaN;
  const factor = sum(now.metrics, "switchyard_capacity_factor_ratio");
  show("drop-rate", percent(share));
  show("drop-note", factor === 0 ? "dropless" : `capacity ${factor} × even`);
  id("drop-rate").classList.toggle("alarm", share > 0.02);
  show("kv-usage", percent(sum(now.metrics, "switchyard_kv_cache_usage_ratio")));
  const since = (name) => sum(now.metrics, name) - sum(before?.metrics, name);
  show("prefix-rate", percent(since("switchyard_prefix_cache_hit_tokens_total") / since("switchyard_prefix_cache_query_tokens_total")));
}

function row(cells, scope = true) {
  const tr = document.createElement("tr");
  cells.forEach((cell, i) => {
    const td = document.createElement(i === 0 && scope ? "th" : "td");
    if (i === 0 && scope) td.scope = "row";
    td.append(cell);
    tr.append(td);
  });
  return tr;
}
const fill = (table, rows) => id(table).tBodies[0].replaceChildren(...rows);

function hottestOf(layer) {
  return layer.load.reduce((best, picks, e) => (picks > layer.load[best] ? e : best), 0);
}

/** The load over an even share of an expert that takes every token: where colours and bars end. */
function mostUneven() {
  const stats = history.snapshots[history.snapshots.length - 1]?.stats;
  return stats?.top_k > 0 ? Math.max(2, stats.experts / stats.top_k) : 4;
}

function showScale() {
  new HeatScale(mostUneven()).drawOn(id("scale-bar"));
  show("scale-most", `${number(mostUneven())} × an even share`);
}

function showLayers() {
  showScale();
  heat.draw(shownLayers.map((layer) => layer.load.map((p) => (layer.picks > 0 ? (p * layer.load.length) / layer.picks : NaN))),
    shownLayers.map((layer) => (layer.imbalance > 0 ? layer.imbalance : 0)), mostUneven());
  showCell();
  if (!id("layers-detail").open) return;
  fill("layers", shownLayers.map((layer, l) => {
    const hottest = hottestOf(layer);
    return row([String(l), String(layer.picks), ratio(layer.imbalance), ratio(layer.touched, 1), layer.picks ? `expert ${hottest}` : "–",
      percent(layer.load[hottest] / layer.picks), String(layer.load.filter((p) => p === 0).length), String(layer.dropped)]);
  }));
}

function showCell() {
  if (!heat.chosen) return;
  const [l, e] = heat.chosen, layer = shownLayers[l];
  if (!layer || layer.load[e] === undefined) return;
  if (!(layer.picks > 0)) return show("heat-text", `Layer ${l}, expert ${e}: no picks of this layer in this time.`);
  const share = layer.load[e] / layer.picks;
  show("heat-text", `Layer ${l}, expert ${e}: ${layer.load[e].toLocaleString("en")} picks, ${percent(share)} of the layer's, `
    + `${ratio(share * layer.load.length)} × an even share. Imbalance of the layer's steps: ${ratio(layer.imbalance)}.`);
}

function showPhases(now, before) {
  const early = new Map((before?.stats.phases ?? []).map((p) => [p.name, p.seconds]));
  const phases = now.stats.phases.map((p) => ({ name: p.name, seconds: p.seconds - (early.get(p.name) ?? 0) })).filter((p) => p.seconds > 0);
  phases.sort((a, b) => b.seconds - a.seconds);
  const steps = now.stats.steps - (before?.stats.steps ?? 0);
  const inSteps = now.stats.step_seconds - (before?.stats.step_seconds ?? 0);
  const known = phases.reduce((total, p) => total + p.seconds, 0);
  if (known > 0 && inSteps > known) phases.push({ name: "other", seconds: inSteps - known });
  show("phase-note", now.stats.phases.length === 0 ? "off: the server runs with --no-profile"
    : steps > 0 ? `${number(steps)} steps of ${time(inSteps / steps)}` : "no step in this time");
  const whole = Math.max(inSteps, known), longest = Math.max(...phases.map((p) => p.seconds));
  fill("phases", phases.map((p) => {
    const track = document.createElement("div"), bar = document.createElement("div");
    track.className = "track";
    bar.style.width = `${(100 * p.seconds) / longest}%`;
    track.append(bar);
    return row([p.name.replaceAll("_", " "), track, percent(p.seconds / whole), time(p.seconds / steps)]);
  }));
}

const LATENCIES = [
  ["first token", "switchyard_time_to_first_token_seconds"],
  ["between tokens", "switchyard_inter_token_latency_seconds"],
  ["queue", "switchyard_request_queue_seconds"],
  ["prefill", "switchyard_request_prefill_seconds"],
  ["decode", "switchyard_request_decode_seconds"],
  ["whole request", "switchyard_request_duration_seconds"],
];
function showLatency(now, before) {
  fill("latency", LATENCIES.map(([name, family]) => {
    const histogram = gained(now.metrics, before?.metrics, family);
    return row([name, ...[0.5, 0.95, 0.99].map((q) => timeAt(histogram, q)), number(histogram.count)]);
  }));
}

function showCache(now, before) {
  const blocks = byLabel(now.metrics, "switchyard_kv_cache_blocks", "state");
  const all = [...blocks.values()].reduce((a, b) => a + b, 0);
  const states = ["used", "cached", "free"].map((state) => [state, blocks.get(state) ?? 0]);
  id("kv-bar").replaceChildren(...states.slice(0, 2).map(([state, count]) => {
    const part = document.createElement("div");
    part.className = state;
    part.style.width = all > 0 ? `${(100 * count) / all}%` : "0";
    return part;
  }));
  id("kv-bar").setAttribute("aria-label", `KV blocks: ${states.map(([state, count]) => `${count} ${state}`).join(", ")}`);
  const since = (name) => sum(now.metrics, name) - sum(before?.metrics, name);
  const named = (state) => {
    const label = document.createElement("span"), swatch = document.createElement("span");
    swatch.className = `swatch ${state}`;
    label.append(swatch, `${state} blocks`);
    return label;
  };
  fill("kv", [...states.map(([state, count]) => row([named(state), number(count)])),
    row(["cached blocks emptied", number(since("switchyard_prefix_cache_evictions_total"))]),
    row(["preemptions", number(since("switchyard_preemptions_total"))]),
    row(["tokens computed again", number(since("switchyard_recomputed_tokens_total"))])]);
}

function showEnds(now, before) {
  const rows = [];
  for (const [family, label, text] of [["switchyard_requests_finished_total", "finish_reason", "finished"],
    ["switchyard_requests_rejected_total", "reason", "turned away"], ["switchyard_client_disconnects_total", "stage", "client left in"],
    ["switchyard_deadlines_missed_total", "deadline", "deadline missed"]]) {
    const early = byLabel(before?.metrics, family, label);
    for (const [name, value] of byLabel(now.metrics, family, label)) {
      const count = value - (early.get(name) ?? 0);
      if (count > 0 || text === "finished") rows.push(row([`${text}: ${name.replaceAll("_", " ")}`, number(count)]));
    }
  }
  const bad = sum(now.metrics, "switchyard_nonfinite_events_total");
  if (bad > 0) rows.push(row(["rows with NaN or infinity, since start", number(bad)]));
  fill("ends", rows);
}

function showCharts() {
  const points = history.points, times = points.map((p) => p.time), of = (field) => points.map((p) => p[field]);
  lineChart(id("imbalance-chart"), times, [{ name: "worst layer", values: of("worst") }, { name: "mean", values: of("mean") }],
    { format: (v) => v.toFixed(v < 10 ? 1 : 0), least: 2, base: 0 });
  lineChart(id("drop-chart"), times, [{ name: "dropped", values: of("dropped") }], { format: percent, least: 0.02 });
  lineChart(id("rate-chart"), times, [{ name: "output", values: of("output") }, { name: "prompt", values: of("prompt") }], { format: number, least: 10 });
  lineChart(id("load-chart"), times, [{ name: "running", values: of("running") }, { name: "waiting", values: of("waiting") }], { format: number, least: 4 });
}

function showModel(now) {
  const config = now.metrics.get("switchyard_config_info")?.[0]?.labels ?? {};
  const name = now.models?.data?.[0]?.id ?? "";
  show("model", `${name} · ${config.model ?? ""} · ${now.stats.moe_layers} MoE layers, ${now.stats.experts} experts, top ${now.stats.top_k} · `
    + `${config.quant ?? ""} on ${now.models?.data?.[0]?.meta?.device ?? ""}`);
  const version = now.metrics.get("switchyard_build_info")?.[0]?.labels.version ?? "";
  id("links").hidden = hasKey(); // a link carries no key
  show("footnote", `Switchyard ${version} · ${number(now.stats.steps)} steps, ${number(now.stats.output_tokens)} tokens since start`);
}

function showAll() {
  const now = history.snapshots[history.snapshots.length - 1];
  if (!now) return;
  let before = history.before(span);
  if (before === now) before = null; // the first answer: all there is
  shownLayers = layersBetween(now.stats, before?.stats);
  showModel(now);
  showTiles(now, before, history.points[history.points.length - 1]);
  showLayers();
  showPhases(now, before);
  showLatency(now, before);
  showCache(now, before);
  showEnds(now, before);
  showCharts();
}

// ---- asking

let models = null, generation = 0;

/** Our own, not the server's. */
class Fault extends Error {}

async function refresh(mine) {
  const [stats, text] = await Promise.all([ask("/v1/moe/stats").then((a) => a.json()), ask("/metrics").then((a) => a.text())]);
  if (models?.start !== stats.start_time) models = { start: stats.start_time, list: await (await ask("/v1/models")).json() };
  if (mine !== generation) return;
  try {
    const now = { time: performance.now() / 1000, stats, metrics: parseMetrics(text), models: models.list };
    history.add(now);
    history.addPoint(pointOf(now));
    setState("ready", "ready");
    showAll();
  } catch (error) {
    throw new Fault("not shown", { cause: error });
  }
  document.body.dataset.answers = String(history.points.length); // for tests: the page has data
}

/** What is wrong, in a word or two. */
function nameOf(error) {
  if (error instanceof Refused) return NAMES[error.code] ?? `error ${error.status}`;
  if (error instanceof Fault) return "fault of this page";
  if (error instanceof SyntaxError) return "not a Switchyard's answer";
  return error.name === "TimeoutError" ? "no answer" : "unreachable";
}

function showTrouble(error) {
  setState((error instanceof Refused && NAMES[error.code]) || "unreachable", nameOf(error));
  if (error instanceof Fault) console.error(error.cause);
  history.addGap(performance.now() / 1000);
  if (history.points.length > 0) showCharts();
  showAge();
}

/** Whatever comes of it, it asks again; only a key that is missing ends it, until somebody gives one. */
async function loop(mine) {
  let wait = document.hidden ? 5000 : 1000;
  try {
    await refresh(mine);
    showAge();
  } catch (error) {
    if (mine !== generation) return;
    if (error instanceof Refused && error.status === 401) {
      setState("locked", "key wanted");
      show("wrong", hasKey() ? "The server does not know this key." : "");
      wait = null;
    } else {
      wait = 2000;
      showTrouble(error);
    }
  } finally {
    if (mine === generation && wait !== null) setTimeout(() => loop(mine), wait);
  }
}

function begin() {
  history = new History();
  loop(++generation);
}

id("locked").addEventListener("submit", (event) => {
  event.preventDefault();
  const usable = setKey(id("key").value);
  id("key").value = "";
  if (usable) begin();
  else show("wrong", "A key has no such characters: was something else pasted?");
});
id("window").addEventListener("change", (event) => {
  span = event.target.value;
  showAll();
});
id("layers-detail").addEventListener("toggle", showLayers);
const choose = (cell) => {
  if (!cell) return;
  if (heat.chosen?.[0] === cell[0] && heat.chosen[1] === cell[1]) return;
  heat.chosen = cell;
  showChoice();
};
/** Read aloud when somebody chooses, not each second when the numbers change. */
function showChoice() {
  id("heat-text").setAttribute("aria-live", "polite");
  showLayers();
  setTimeout(() => id("heat-text").setAttribute("aria-live", "off"), 500);
}
for (const event of ["pointerdown", "pointermove"]) id("heat").addEventListener(event, (at) => choose(heat.cellAt(at.offsetX, at.offsetY)));
id("heat").addEventListener("keydown", (event) => {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step || shownLayers.length === 0) return;
  event.preventDefault();
  heat.move(...step);
  showChoice();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  showScale();
  showAll();
});
addEventListener("resize", showAll);
showScale();
setInterval(showAge, 1000);
begin();
