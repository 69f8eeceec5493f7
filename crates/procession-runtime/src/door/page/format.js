// Figures and texts for people.

export const number = (value) => (value === null || value === undefined ? "-" : Number(value).toLocaleString("en"));

export const percent = (value) => (value * 100).toFixed(1);

export function duration(ms) {
  if (!ms) return "-";
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 600_000) return `${Math.floor(ms / 1000)} s`;
  if (ms < 36_000_000) return `${Math.floor(ms / 60_000)} min`;
  return `${Math.floor(ms / 3_600_000)} h`;
}

// A time in microseconds, which may be short.
export function time(us) {
  if (us < 1000) return `${us} us`;
  return us < 1_000_000 ? `${Math.floor(us / 1000)} ms` : duration(us / 1000);
}

export const bytes = (value) => (value < 10_000 ? `${value} B` : `${Math.floor(value / 1024)} KiB`);

// The last components of a location, which tell more than the first.
export const shortLocation = (text) => (text ? text.split("/").slice(-3).join("/") : "-");

export const title = (row) => row.label ?? shortLocation(row.location);

export function wait(wait) {
  if (!wait) return "";
  const reasons = wait.reasons.join(", ") || "a waker";
  const cycle = wait.in_cycle ? "CYCLE: " : "";
  const target = wait.target ? ` of ${wait.target}` : "";
  const age = wait.at_least_ms ? `, ${duration(wait.at_least_ms)}` : "";
  const at = wait.location ? ` at ${shortLocation(wait.location)}` : "";
  return `${cycle}${reasons}${target}${age}${at}`;
}

export const pids = (list) =>
  list.first.join(" ") + (list.total > list.first.length ? ` and ${list.total - list.first.length} more` : "") || "-";

// Puts the nodes of a tree below each other, each with its depth.
export function flatten(nodes) {
  const children = new Map();
  for (const node of nodes) {
    const siblings = children.get(node.supervisor) ?? [];
    siblings.push(node);
    children.set(node.supervisor, siblings);
  }
  const flat = [];
  const next = (children.get(null) ?? []).map((node) => [node, 0]).reverse();
  while (next.length > 0) {
    const [node, depth] = next.pop();
    flat.push({ ...node, depth });
    for (const child of [...(children.get(node.pid) ?? [])].reverse()) next.push([child, depth + 1]);
  }
  return flat;
}

// The state of a process. One that is suspended would be ready otherwise.
export const standing = (row) => (row.suspended ? "suspended" : row.state);
