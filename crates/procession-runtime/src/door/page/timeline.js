// The workers' timeline: a band for each worker, with the locations whose processes ran. Locations have
// letters, so that colour alone says nothing; a table beside it has the same figures.

// The room for the names of the workers, and the height of a band and of the axis.
const LEFT = 80;
const BAND = 30;
const AXIS = 20;
const MARKED = 6;

export const letter = (location) => (location < MARKED ? String.fromCharCode(65 + location) : "other");

const span = (us) => (us < 1000 ? `${us} us` : us < 1_000_000 ? `${us / 1000} ms` : `${us / 1_000_000} s`);

// The locations for the table, each with the part of its time and the process that ran last.
export function locations({ locations, workers, window_us }) {
  const latest = new Map();
  for (const { slices } of workers) {
    for (const [column, , location, , pid] of slices) {
      if (pid && (latest.get(location)?.column ?? -1) <= column) latest.set(location, { column, pid });
    }
  }
  const all = window_us * Math.max(1, workers.length);
  return locations.slice(0, 50).map((found, at) => ({
    letter: letter(at), location: found.location, share: found.us / all, pid: latest.get(at)?.pid ?? "-",
  }));
}

// Neighbours of one location, which get one letter.
function runs(slices) {
  const found = [];
  for (const [column, count, location] of slices) {
    const last = found.at(-1);
    if (last && last.location === location && last.end === column) last.end += count;
    else found.push({ location, begin: column, end: column + count });
  }
  return found;
}

export function draw(canvas, timeline) {
  const { workers, columns, window_us } = timeline;
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 900;
  const height = Math.max(1, workers.length) * BAND + AXIS;
  canvas.style.height = `${height}px`;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const isForced = matchMedia("(forced-colors: active)").matches;
  const colour = (location) => (isForced ? style.color : style.getPropertyValue(location < MARKED ? `--location-${location}` : "--location-other"));
  const each = (width - LEFT) / columns;
  context.font = "12px system-ui";
  workers.forEach(({ slices, since_us }, worker) => {
    const top = worker * BAND;
    const bottom = top + BAND - 4;
    // Nothing is known of what was before; slanted lines say so.
    context.strokeStyle = style.getPropertyValue("--line");
    const known = LEFT + (since_us / Math.max(1, window_us)) * (width - LEFT);
    for (let x = LEFT; x + 4 < known; x += 8) {
      context.beginPath();
      context.moveTo(x, bottom);
      context.lineTo(x + 4, top + 4);
      context.stroke();
    }
    context.globalAlpha = isForced ? 0.4 : 1;
    for (const [column, count, location, busy] of slices) {
      const tall = Math.max(2, (busy / 100) * (BAND - 8));
      context.fillStyle = colour(location);
      context.fillRect(LEFT + column * each, bottom - tall, Math.max(1, count * each), tall);
    }
    context.globalAlpha = 1;
    context.fillStyle = context.strokeStyle = style.color;
    for (const { location, begin, end } of runs(slices)) {
      if ((end - begin) * each < 14) continue;
      context.fillText(letter(location), LEFT + begin * each + 3, bottom - 4);
    }
    context.beginPath();
    context.moveTo(LEFT, bottom + 0.5);
    context.lineTo(width, bottom + 0.5);
    context.stroke();
    context.fillText(`worker ${worker}`, 4, bottom - 4);
  });
  context.fillStyle = style.color;
  context.fillText(`${span(window_us)} ago`, LEFT, height - 5);
  context.textAlign = "right";
  context.fillText("now", width - 2, height - 5);
}

// The process at a point of the picture, or null.
export function processAt(canvas, timeline, event) {
  const worker = timeline?.workers[Math.floor(event.offsetY / BAND)];
  const column = Math.floor(((event.offsetX - LEFT) / (canvas.clientWidth - LEFT)) * timeline?.columns);
  const near = (slice) => Math.max(0, slice[0] - column, column - slice[0] - slice[1] + 1);
  const slice = worker?.slices.reduce((best, next) => (best && near(best) <= near(next) ? best : next), null);
  return slice && near(slice) <= 3 ? slice[4] : null;
}
