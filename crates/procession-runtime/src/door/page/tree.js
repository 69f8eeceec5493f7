// The supervision tree as a grid whose rows fold. Up, Down, Home and End move between rows, Right
// unfolds, Left folds or goes to the supervisor, Enter opens the process.
import { flatten, number, title } from "/format.js";
import { element, setText } from "/table.js";

const COLUMNS = ["Process", "PID", "Name", "Kind", "State", "Mailbox"];
// A larger tree begins with its first two levels.
const UNFOLDED = 200;

export function makeTree(container, caption, open) {
  const head = element("tr", { role: "row" });
  for (const name of COLUMNS) head.append(element("th", { role: "columnheader", scope: "col" }, name));
  const body = element("tbody", { role: "rowgroup" });
  const captionNode = element("caption", {}, caption);
  container.append(element("div", { class: "frame" }, element("table", { role: "treegrid", "aria-label": caption }, captionNode, element("thead", { role: "rowgroup" }, head), body)));
  // What the user has folded and unfolded.
  const folded = new Map();
  let nodes = [];
  let current = null;

  const hasChildren = (at) => nodes[at + 1]?.depth > nodes[at].depth;
  const isFolded = (at) => hasChildren(at) && (folded.get(nodes[at].pid) ?? (nodes.length > UNFOLDED && nodes[at].depth >= 1));

  function visible() {
    const found = [];
    let hidden = Infinity;
    nodes.forEach((node, at) => {
      if (node.depth > hidden) return;
      hidden = isFolded(at) ? node.depth : Infinity;
      found.push({ ...node, at });
    });
    return found;
  }

  function row() {
    const made = element("tr", { role: "row" });
    const mark = element("span", { class: "mark", "aria-hidden": "true" });
    mark.addEventListener("click", () => toggle(made.dataset.pid));
    made.append(element("td", { role: "gridcell" }, mark, element("span")));
    for (let n = 1; n < COLUMNS.length; n++) made.append(element("td", { role: "gridcell" }));
    made.addEventListener("focus", () => select(made));
    made.addEventListener("dblclick", () => open(made.dataset.pid));
    return made;
  }

  function select(made) {
    current = made.dataset.pid;
    for (const other of body.rows) other.tabIndex = other === made ? 0 : -1;
  }

  function toggle(pid, fold) {
    const at = nodes.findIndex((node) => node.pid === pid);
    if (at < 0 || !hasChildren(at)) return;
    folded.set(pid, fold ?? !isFolded(at));
    render();
  }

  function render() {
    const isFocused = body.contains(document.activeElement);
    const shown = visible();
    while (body.rows.length < shown.length) body.append(row());
    while (body.rows.length > shown.length) body.rows[body.rows.length - 1].remove();
    shown.forEach((node, line) => {
      const made = body.rows[line];
      made.dataset.pid = node.pid;
      made.setAttribute("aria-level", String(node.depth + 1));
      if (hasChildren(node.at)) made.setAttribute("aria-expanded", String(!isFolded(node.at)));
      else made.removeAttribute("aria-expanded");
      const [mark, text] = made.cells[0].children;
      setText(mark, hasChildren(node.at) ? (isFolded(node.at) ? "▸" : "▾") : "");
      made.cells[0].style.paddingLeft = `${0.5 + 1.25 * Math.min(node.depth, 20)}rem`;
      [title(node), node.pid, node.name ?? "-", node.kind, node.state, number(node.mailbox)].forEach((value, cell) => setText(cell === 0 ? text : made.cells[cell], value));
    });
    // One row takes the focus. A process may have another row than before.
    const kept = [...body.rows].find((made) => made.dataset.pid === current) ?? body.rows[0];
    for (const made of body.rows) made.tabIndex = made === kept ? 0 : -1;
    if (isFocused && kept && document.activeElement !== kept) kept.focus({ preventScroll: true });
  }

  body.addEventListener("keydown", (event) => {
    const made = event.target.closest("tr");
    if (!made) return;
    const at = nodes.findIndex((node) => node.pid === made.dataset.pid);
    const go = {
      ArrowDown: () => made.nextElementSibling?.focus(),
      ArrowUp: () => made.previousElementSibling?.focus(),
      Home: () => body.rows[0].focus(),
      End: () => body.rows[body.rows.length - 1].focus(),
      Enter: () => open(made.dataset.pid),
      ArrowRight: () => (isFolded(at) ? toggle(made.dataset.pid, false) : hasChildren(at) && made.nextElementSibling?.focus()),
      ArrowLeft: () => {
        if (hasChildren(at) && !isFolded(at)) return toggle(made.dataset.pid, true);
        [...body.rows].find((other) => other.dataset.pid === nodes[at]?.supervisor)?.focus();
      },
    }[event.key];
    if (!go) return;
    event.preventDefault();
    go();
  });

  return {
    update(found) {
      nodes = flatten(found);
      setText(captionNode, nodes.length === 0 ? "No supervisors" : `${caption}: ${number(nodes.length)} processes`);
      render();
    },
  };
}
