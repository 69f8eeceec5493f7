// The plots of the last ten minutes: small pictures on one axis of time, with stalls and restarts as
// marks. A table beside them has the latest figures, because a picture says nothing to someone who
// listens.
import { number } from "/format.js";

const SPAN = 600e6;
const HEIGHT = 84;
const LEFT = 56;
const TOP = 16;
const BOTTOM = 8;
const LINES = 6;

const rate = (points, name) => deltas(points, (now, before, seconds) => (now[name] - before[name]) / seconds);

// A value for each two neighbours, at the time of the later one.
function deltas(points, value) {
  return points.slice(1).map((now, at) => {
    const before = points[at];
    return [now.at_us, value(now, before, Math.max(1e-3, (now.at_us - before.at_us) / 1e6))];
  });
}

const bound = (bucket) => 2 ** (8 + bucket);

// The bound in nanoseconds below which this part of the wake-ups between two points was, or null.
export function quantile(now, before, part) {
  const counts = now.wake.map((count, at) => Math.max(0, count - before.wake[at]));
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let rank = Math.max(1, total * part);
  const found = counts.findIndex((count) => (rank -= count) <= 0);
  return bound(found < 0 ? counts.length - 1 : found);
}

export function nanoseconds(value) {
  if (value === null || value === undefined) return "-";
  if (value < 1e3) return `${value} ns`;
  if (value < 1e6) return `${Math.floor(value / 1e3)} us`;
  return value < 1e9 ? `${Math.floor(value / 1e6)} ms` : `${(value / 1e9).toFixed(1)} s`;
}

const whole = (value) => number(Math.round(value));

// Each plot: its name, its lines (a name and points of time and value), how to write a value, and the
// maximum if it is fixed.
function plots(points) {
  const workers = Math.min(...points.map((point) => point.busy_us.length), 1e9);
  const busy = (worker) => deltas(points, (now, before, seconds) => Math.min(100, (now.busy_us[worker] - before.busy_us[worker]) / seconds / 1e4));
  const mean = deltas(points, (now, before, seconds) => {
    const sums = [now, before].map((point) => point.busy_us.reduce((sum, us) => sum + us, 0));
    return Math.min(100, (sums[0] - sums[1]) / seconds / 1e4 / now.busy_us.length);
  });
  const each = workers <= LINES ? Array.from({ length: workers }, (_, worker) => [`worker ${worker}`, busy(worker)]) : [["mean of all", mean]];
  const waits = (part) => deltas(points, (now, before) => quantile(now, before, part)).filter(([, value]) => value !== null);
  return [
    { name: "Work of each worker, %", lines: each, text: (value) => `${value.toFixed(0)} %`, most: 100 },
    { name: "Ready processes", lines: [["ready", points.map((point) => [point.at_us, point.ready])]], text: whole },
    { name: "Time from wake to run", lines: [["half", waits(0.5)], ["99 %", waits(0.99)]], text: nanoseconds, isLog: true },
    { name: "Starts and ends in a second", lines: [["starts", rate(points, "spawned")], ["ends", rate(points, "ended")]], text: whole },
    { name: "Messages in a second", lines: [["sent", rate(points, "messages")]], text: whole },
    { name: "Timers in a second", lines: [["fired", rate(points, "timers")]], text: whole },
  ];
}

// The times at which a count rose, with the letter of the mark.
function marks(points) {
  const of = (name, letter) => deltas(points, (now, before) => now[name] - before[name]).filter(([, more]) => more > 0).map(([at]) => [at, letter]);
  return [...of("stalls", "S"), ...of("restarts", "R")];
}

function drawPlot(canvas, plot, marked, end) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 400;
  canvas.style.height = `${HEIGHT}px`;
  canvas.width = width * scale;
  canvas.height = HEIGHT * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const isForced = matchMedia("(forced-colors: active)").matches;
  const values = plot.lines.flatMap(([, line]) => line.map(([, value]) => value));
  const most = plot.most ?? Math.max(1, ...values);
  const least = plot.isLog ? 128 : 0;
  const part = plot.isLog ? (value) => Math.log(value / least) / Math.log(Math.max(2, most / least)) : (value) => value / most;
  const x = (at) => LEFT + (1 - (end - at) / SPAN) * (width - LEFT - 2);
  const y = (value) => HEIGHT - BOTTOM - Math.max(0, Math.min(1, part(value))) * (HEIGHT - TOP - BOTTOM);
  context.font = "11px system-ui";
  context.strokeStyle = style.getPropertyValue("--line");
  context.strokeRect(LEFT - 0.5, TOP - 0.5, width - LEFT - 1, HEIGHT - TOP - BOTTOM + 1);
  context.fillStyle = style.color;
  context.textAlign = "right";
  context.fillText(plot.text(most), LEFT - 5, TOP + 8);
  context.fillText(plot.isLog ? "" : plot.text(0), LEFT - 5, HEIGHT - BOTTOM);
  context.textAlign = "left";
  for (const [at, letter] of marked) {
    if (at < end - SPAN) continue;
    context.strokeStyle = context.fillStyle = isForced ? style.color : style.getPropertyValue("--bad");
    context.beginPath();
    context.moveTo(x(at), TOP);
    context.lineTo(x(at), HEIGHT - BOTTOM);
    context.stroke();
    context.fillText(letter, x(at) - 3, TOP - 4);
  }
  plot.lines.forEach(([name, line], number) => {
    context.strokeStyle = isForced ? style.color : style.getPropertyValue(`--plot-${number}`);
    context.setLineDash(number === 0 ? [] : [2 + 2 * number, 3]);
    context.lineWidth = 1.5;
    context.beginPath();
    let before = null;
    for (const [at, value] of line) {
      if (at < end - SPAN) continue;
      // Of a time in which the page or the program stood still, nothing is known.
      if (before === null || at - before > 10e6) context.moveTo(x(at), y(value));
      else context.lineTo(x(at), y(value));
      before = at;
    }
    context.stroke();
  });
  context.setLineDash([]);
  context.lineWidth = 1;
}

// Makes the pictures, and returns what draws them.
export function makePlots(container) {
  const shown = [];
  return (points) => {
    if (points.length < 2) return [];
    const end = points.at(-1).at_us;
    const marked = marks(points);
    const rows = [];
    plots(points).forEach((plot, at) => {
      if (!shown[at]) {
        const figure = document.createElement("figure");
        const caption = document.createElement("figcaption");
        const canvas = document.createElement("canvas");
        canvas.setAttribute("role", "img");
        figure.append(caption, canvas);
        container.append(figure);
        shown[at] = { caption, canvas };
      }
      const latest = plot.lines.map(([name, line]) => [name, line.length > 0 ? plot.text(line.at(-1)[1]) : "-"]);
      const text = `${plot.name}: ${latest.map(([name, value]) => (plot.lines.length > 1 ? `${name} ${value}` : value)).join(", ")}`;
      const { caption, canvas } = shown[at];
      if (caption.textContent !== text) caption.textContent = text;
      canvas.setAttribute("aria-label", `${plot.name} over the last ten minutes`);
      drawPlot(canvas, plot, marked, end);
      for (const [name, line] of plot.lines) {
        const values = line.filter(([at]) => at >= end - SPAN).map(([, value]) => value);
        const most = values.length > 0 ? plot.text(Math.max(...values)) : "-";
        rows.push({ name: `${plot.name}, ${name}`, now: values.length > 0 ? plot.text(values.at(-1)) : "-", most });
      }
    });
    const count = (letter) => number(marked.filter(([at, is]) => is === letter && at >= end - SPAN).length);
    rows.push({ name: "Times with new stalls (S)", now: count("S"), most: "-" }, { name: "Times with restarts (R)", now: count("R"), most: "-" });
    return rows;
  };
}
