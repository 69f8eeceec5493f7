// Pictures of relations: which process waits for which, and the nodes of a cluster.
import { duration, shortLocation, time, title } from "/format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDE = 220;
const TALL = 34;
const GAP = 60;

function shape(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// Finds the processes that others wait for, and those that wait for them, each with its column and
// line. A process waits for one other at most, so that each part has one circle or one end.
export function layout(rows) {
  const target = new Map();
  const known = new Map();
  for (const row of rows) {
    known.set(row.pid, row);
    if (row.wait?.target) target.set(row.pid, row.wait.target);
  }
  const waiters = new Map();
  for (const [pid, other] of target) waiters.set(other, [...(waiters.get(other) ?? []), pid]);
  const circles = new Set();
  const seen = new Set();
  for (const start of target.keys()) {
    const path = [];
    let pid = start;
    while (pid !== undefined && !seen.has(pid)) {
      seen.add(pid);
      path.push(pid);
      pid = target.get(pid);
    }
    const from = path.indexOf(pid);
    if (from >= 0) path.slice(from).forEach((member) => circles.add(member));
  }
  const nodes = [];
  const placed = new Map();
  let line = 0;
  // Puts a process into its column, and those that wait for it into the next.
  function place(first) {
    const next = [[first, 0]];
    while (next.length > 0) {
      const [pid, column] = next.pop();
      if (placed.has(pid)) continue;
      const node = { pid, column, line: line++, row: known.get(pid), inCircle: circles.has(pid) };
      placed.set(pid, node);
      nodes.push(node);
      for (const waiter of [...(waiters.get(pid) ?? [])].reverse()) {
        next.push([waiter, circles.has(pid) && circles.has(waiter) ? column : column + 1]);
      }
    }
  }
  // Circles first.
  for (const pid of circles) place(pid);
  for (const pid of waiters.keys()) if (!target.has(pid)) place(pid);
  for (const pid of target.keys()) place(pid);
  const edges = [...target].map(([from, to]) => ({ from: placed.get(from), to: placed.get(to), inCircle: circles.has(from) && circles.has(to) }));
  return { nodes, edges, circles: circles.size };
}

const arrow = (id, kind) =>
  shape("marker", { id, viewBox: "0 0 8 8", refX: "8", refY: "4", markerWidth: "10", markerHeight: "10", markerUnits: "userSpaceOnUse", orient: "auto" }, shape("path", { d: "M0 0L8 4L0 8z", class: kind }));

// Draws the graph of waits, if it has changed. A node opens its process.
export function makeWaits(container, open) {
  let drawn = "";
  return (rows) => {
    const { nodes, edges, circles } = layout(rows);
    const words = nodes.length === 0
      ? "No process waits for another that is known."
      : `${edges.length} processes wait for others${circles > 0 ? `; CYCLE: ${circles} of them wait in circles` : ""}.`;
    const key = JSON.stringify(nodes.map((node) => [node.pid, node.column, node.line, node.inCircle]));
    if (key === drawn) return words;
    drawn = key;
    const focused = container.contains(document.activeElement) ? document.activeElement.dataset.pid : null;
    container.textContent = "";
    if (nodes.length === 0) return words;
    const left = (node) => 40 + node.column * (WIDE + GAP);
    const top = (node) => 8 + node.line * (TALL + 10);
    const width = Math.max(...nodes.map(left)) + WIDE + 40;
    const height = Math.max(...nodes.map(top)) + TALL + 8;
    const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Processes, and which process each waits for" });
    svg.append(shape("defs", {}, arrow("arrow", "edge-end"), arrow("arrow-bad", "edge-end bad")));
    for (const { from, to, inCircle } of edges) {
      const [x1, y1, y2] = [left(from), top(from) + TALL / 2, top(to) + TALL / 2];
      const isSame = from.column <= to.column;
      const x2 = isSame ? left(to) : left(to) + WIDE;
      const bend = isSame ? Math.max(4, x1 - 22) : (x1 + x2) / 2;
      const d = from === to ? `M${x1} ${y1 - 8}C${x1 - 22} ${y1 - 16} ${x1 - 22} ${y1 + 16} ${x1} ${y1 + 8}` : `M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}`;
      svg.append(shape("path", { d, class: inCircle ? "edge bad" : "edge", "marker-end": inCircle ? "url(#arrow-bad)" : "url(#arrow)" }));
    }
    for (const node of nodes) {
      const name = node.row ? title(node.row) : "another process";
      const reason = node.row?.wait ? `${node.row.wait.reasons.join(", ")}, ${duration(node.row.wait.at_least_ms)}` : "is waited for";
      const group = shape("g", { role: "button", tabindex: "0", transform: `translate(${left(node)} ${top(node)})`, class: node.inCircle ? "node bad" : "node" });
      group.dataset.pid = node.pid;
      group.append(shape("rect", { width: WIDE, height: TALL, rx: 4 }));
      group.append(shape("text", { x: 6, y: 14 }, cut(`${node.pid} ${name}`, 34)));
      group.append(shape("text", { x: 6, y: 28, class: "small" }, cut(node.inCircle ? `CYCLE: ${reason}` : reason, 38)));
      group.addEventListener("click", () => open(node.pid));
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        open(node.pid);
      });
      svg.append(group);
    }
    container.append(svg);
    if (focused) [...container.querySelectorAll("[data-pid]")].find((node) => node.dataset.pid === focused)?.focus({ preventScroll: true });
    return words;
  };
}

const PEERS = 24;

// Draws the nodes that this node of a cluster is connected to. Returns what the picture says.
export function drawCluster(container, found) {
  container.textContent = "";
  const own = found?.node?.[0];
  if (!own) return "";
  const peers = found.peer ?? [];
  const drawn = peers.slice(0, PEERS);
  const [width, height] = [720, 340];
  const said = (peer) => `${peer.peer}: round trip ${peer.round_trip_us === null ? "-" : time(peer.round_trip_us)}, ${peer.queued_bytes} bytes wait`;
  const words = `${own.node} is connected to ${peers.length} nodes. ${drawn.map(said).join(". ")}`;
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
  const node = (x, y, name, more, isBad) =>
    shape("g", { class: isBad ? "node bad" : "node", transform: `translate(${x - 85} ${y - 17})` }, shape("rect", { width: 170, height: TALL, rx: 4 }), shape("text", { x: 6, y: 14 }, cut(name, 26)), shape("text", { x: 6, y: 28, class: "small" }, cut(more, 30)));
  const at = (number) => {
    const angle = (number / Math.max(1, drawn.length)) * 2 * Math.PI - Math.PI / 2;
    return [width / 2 + Math.cos(angle) * (width / 2 - 90), height / 2 + Math.sin(angle) * (height / 2 - 24)];
  };
  drawn.forEach((peer, number) => {
    const [x, y] = at(number);
    svg.append(shape("path", { d: `M${width / 2} ${height / 2}L${x} ${y}`, class: peer.queued_bytes > 0 ? "edge bad" : "edge" }));
  });
  drawn.forEach((peer, number) => {
    const more = peer.queued_bytes > 0 ? `${peer.queued_bytes} bytes WAIT` : peer.round_trip_us === null ? "connected" : `round trip ${time(peer.round_trip_us)}`;
    svg.append(node(...at(number), shortLocation(peer.peer), more, peer.queued_bytes > 0));
  });
  svg.append(node(width / 2, height / 2, own.node, "this node", false));
  container.append(svg);
  return peers.length > PEERS ? `${own.node} is connected to ${peers.length} nodes, of which ${PEERS} are shown.` : `${own.node} is connected to ${peers.length} nodes.`;
}
