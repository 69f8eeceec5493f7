// The steps of each worker over time, as one band for each worker. Colour says nothing: the bands
// have numbers.

const KEPT = 120;
// The room for the names of the workers.
const LEFT = 80;
const history = [];
let before = null;

export function remember(workers) {
  const steps = workers.map((worker) => worker.steps);
  if (before) history.push(steps.map((count, at) => Math.max(0, count - (before[at] ?? 0))));
  before = steps;
  if (history.length > KEPT) history.shift();
}

export function draw(canvas) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const style = getComputedStyle(canvas);
  context.clearRect(0, 0, width, height);
  const bands = Math.min(16, history.at(-1)?.length ?? 0);
  const most = Math.max(1, ...history.flat());
  const band = height / Math.max(1, bands);
  context.font = "12px system-ui";
  for (let worker = 0; worker < bands; worker++) {
    const bottom = (worker + 1) * band;
    context.fillStyle = style.getPropertyValue("--mark") || style.color;
    history.forEach((counts, at) => {
      const tall = ((counts[worker] ?? 0) / most) * (band - 4);
      const each = (width - LEFT) / KEPT;
      context.fillRect(LEFT + at * each, bottom - tall, each - 1, tall);
    });
    context.fillStyle = style.color;
    context.fillText(`worker ${worker}`, 4, bottom - band + 13);
  }
}
