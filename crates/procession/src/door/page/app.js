// The page of a door. It asks for what it shows, as seldom as it takes to use at most 1 % of the
// processors.
import { draw, remember } from "/chart.js";
import { bytes, duration, flatten, number, percent, pids, place, title, wait } from "/format.js";
import { makeList, makeTable, setText } from "/table.js";

const INTERVAL_MIN = 1000;
const INTERVAL_MAX = 60_000;
const SHARE = 100;

const by = (id) => document.getElementById(id);
const state = { view: "processes", sort: "samples", since: null, paused: false, failure: "", crash: null, stalls: null };

async function get(target) {
  const answer = await fetch(target, { cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

const detail = makeTable(by("detail-table"), "Its figures", [
  { title: "What", value: (row) => row[0] },
  { title: "Value", value: (row) => row[1], wide: true },
]);

async function open(pid) {
  by("detail").showModal();
  setText(by("detail-title"), `Process ${pid}`);
  try {
    const { process } = await get(`/process/${encodeURIComponent(pid)}`);
    detail.update([
      ["label", process.label ?? "-"], ["name", process.name ?? "-"], ["spawned at", process.place],
      ["kind", process.kind], ["receives", process.message], ["state", process.state],
      ["waits for", wait(process.wait) || "-"],
      ["mailbox", `${number(process.mailbox)}, at most ${number(process.high_water)} so far`],
      ["received", number(process.received)], ["steps", number(process.steps)],
      ["memory", `body ${bytes(process.memory.body)}, mailbox ${bytes(process.memory.mailbox)}, stack ${bytes(process.memory.stack)}`],
      ["parent", process.parent ?? "-"], ["supervisor", process.supervisor ?? "-"],
      ["links", pids(process.links)], ["monitors", pids(process.monitored)],
      ["is monitored by", pids(process.monitors)], ["scope", pids(process.scope)],
      ["children", pids(process.children)],
    ]);
  } catch (error) {
    detail.update([["failed", error.message]]);
  }
}

const sort = (key) => { state.sort = key; state.since = null; look(); };
const steps = (row) => row.steps_in_window ?? row.steps;

const tables = {
  processes: makeTable(by("processes-table"), "Processes", [
    { title: "PID", value: (row) => row.pid, pid: true },
    { title: "State", value: (row) => row.state },
    { title: "CPU %", key: "samples", value: (row) => percent(row.share), right: true },
    { title: "Mailbox", key: "mailbox", value: (row) => number(row.mailbox), right: true },
    { title: "Growth", key: "growth", value: (row) => number(row.growth), right: true },
    { title: "Steps", key: "steps", value: (row) => number(steps(row)), right: true },
    { title: "Memory", key: "memory", value: (row) => bytes(row.memory.body + row.memory.mailbox + row.memory.stack), right: true },
    { title: "Process", value: title, wide: true },
    { title: "Waits for", key: "age", value: (row) => wait(row.wait), wide: true, isBad: (row) => row.wait?.in_cycle === true },
  ], { open, sort }),
  groups: makeTable(by("groups-table"), "Groups", [
    { title: "Processes", value: (row) => number(row.processes), right: true },
    { title: "Samples", key: "samples", value: (row) => number(row.samples), right: true },
    { title: "Mailbox", key: "mailbox", value: (row) => number(row.mailbox), right: true },
    { title: "Growth", key: "growth", value: (row) => number(row.growth), right: true },
    { title: "Oldest wait", key: "age", value: (row) => duration(row.oldest_wait_ms), right: true },
    { title: "Group", wide: true, value: (row) => [row.state, row.reasons && (row.reasons.join(", ") || "a waker"), row.place && place(row.place)].filter(Boolean).join(" at ") || "does not wait" },
  ], { sort }),
  tree: makeTable(by("tree-table"), "Supervisors and their children", [
    { title: "PID", value: (row) => row.pid, pid: true, depth: (row) => row.depth },
    { title: "Level", value: (row) => String(row.depth + 1), right: true },
    { title: "Process", value: title, wide: true },
    { title: "Name", value: (row) => row.name ?? "-" },
    { title: "Kind", value: (row) => row.kind },
    { title: "State", value: (row) => row.state },
    { title: "Mailbox", value: (row) => number(row.mailbox), right: true },
  ], { open }),
  crashes: makeTable(by("crashes-table"), "Processes that failed, the latest first", [
    { title: "Ago", value: (row) => duration(row.age_ms), right: true },
    { title: "PID", value: (row) => row.pid },
    { title: "Process", value: title, wide: true },
    { title: "Exit", value: (row) => row.exit, wide: true },
    { title: "Panicked at", value: (row) => row.panicked_at ?? "-", wide: true },
    { title: "Its supervisor", value: (row) => row.answer ?? "-" },
  ]),
  workers: makeTable(by("workers-table"), "Workers", [
    { title: "Worker", value: (row) => String(row.worker), right: true },
    { title: "Step", value: (row) => (row.step_age_ms === null ? "in none" : row.step_age_ms < 10 ? "in one" : `STALLED for ${duration(row.step_age_ms)}`), isBad: (row) => row.step_age_ms >= 10 },
    { title: "Queue", value: (row) => number(row.queue), right: true },
    { title: "Steps", value: (row) => number(row.steps), right: true },
    { title: "Steals", value: (row) => number(row.steals), right: true },
    { title: "Parks", value: (row) => number(row.parks), right: true },
  ]),
  figures: makeTable(by("figures-table"), "The scheduler", [
    { title: "What", value: (row) => row[0] },
    { title: "Number", value: (row) => number(row[1]), right: true },
  ]),
};

const list = makeList(by("all-list"), "All processes", ["PID", "State", "Mailbox", "Steps", "Process"], {
  open,
  async load(skip, count) {
    const part = await get(`/processes?skip=${skip}&count=${count}`);
    const rows = part.rows.map((row) => [row.pid, row.state, number(row.mailbox), number(row.steps), title(row)]);
    return { rows, total: part.processes };
  },
});

function target() {
  const query = new URLSearchParams({ sort: state.sort, top: state.view === "processes" ? by("top").value : "0" });
  if (state.view === "groups") {
    query.set("group", by("group").value);
    query.set("top", "200");
  }
  if (state.view === "processes") {
    for (const name of ["label", "state", "place"]) if (by(name).value) query.set(name, by(name).value);
  }
  if (state.since) query.set("since", state.since);
  return `/view?${query}`;
}

// Says only what matters to someone who listens: new stalls and crashes.
function tell(workers, crashes) {
  const stalls = workers.stalls.blocked + workers.stalls.computing;
  const latest = crashes.crashes[0];
  const news = [];
  if (state.stalls !== null && stalls > state.stalls) news.push(`${stalls - state.stalls} new stalls.`);
  if (state.crash !== null && latest && latest.number > state.crash) news.push(`${title(latest)} failed: ${latest.exit}`);
  state.stalls = stalls;
  state.crash = latest?.number ?? 0;
  if (news.length > 0) setText(by("news"), news.join(" "));
}

async function ask() {
  const about = state.about ??= await get("/about");
  const view = await get(target());
  const workers = await get("/workers");
  const crashes = await get("/crashes");
  state.since = view.view;
  tell(workers, crashes);
  remember(workers.workers);
  document.title = `${about.program} - procession`;
  setText(by("title"), `${about.program}, scheduler ${about.name}`);
  setText(by("summary"), `System process ${about.system_pid}, ${about.workers} workers, ${number(view.processes)} processes, ${number(workers.stalls.computing + workers.stalls.blocked)} stalls, ${number(crashes.crashes.length)} crashes kept.`);
  if (state.view === "processes") {
    const span = view.window_ms ? `in the last ${duration(view.window_ms)}` : "since their start";
    tables.processes.update(view.rows, `${number(view.rows.length)} of ${number(view.matched)} processes, by ${state.sort}, ${span}`, state.sort);
  }
  if (state.view === "all") await list.update();
  if (state.view === "groups") tables.groups.update(view.groups, `Groups of ${number(view.matched)} processes, by ${state.sort}`, state.sort);
  if (state.view === "tree") tables.tree.update(flatten((await get("/tree")).nodes));
  if (state.view === "crashes") tables.crashes.update(crashes.crashes);
  if (state.view === "workers") {
    tables.workers.update(workers.workers.map((worker, at) => ({ ...worker, worker: at })));
    const { timers, descriptors, stalls } = workers;
    tables.figures.update([
      ["processes in the global queue", workers.global_queue], ["processes started", workers.spawned],
      ["processes ended", workers.ended], ["of those, by a panic", workers.panicked],
      ["messages sent", workers.messages_sent], ["messages left unread", workers.messages_discarded],
      ["timers pending", timers.pending], ["timers fired", timers.fired], ["timers cancelled", timers.cancelled],
      ["sockets and other descriptors", descriptors.registered], ["polls of the kernel", descriptors.polls],
      ["accepts put off", descriptors.accepts_put_off], ["stalls that computed", stalls.computing],
      ["stalls that were blocked", stalls.blocked], ["rescues", stalls.replaced],
      ["blocking sections", workers.blocking_sections],
    ]);
    draw(by("chart"));
  }
}

let timer = null;
let isLooking = false;

async function look() {
  clearTimeout(timer);
  if (isLooking) return;
  isLooking = true;
  const begin = performance.now();
  try {
    await ask();
    state.failure = "";
  } catch (error) {
    state.failure = `FAILED: ${error.message}. `;
  }
  isLooking = false;
  // The whole time of the answers, as if the program had computed all of it.
  const took = performance.now() - begin;
  const processors = navigator.hardwareConcurrency || 1;
  const interval = Math.min(INTERVAL_MAX, Math.max(INTERVAL_MIN, (took * SHARE) / processors));
  const share = (took / processors / interval) * 100;
  setText(by("rate"), `${state.failure}${state.paused ? "Paused. " : ""}A look each ${(interval / 1000).toFixed(1)} s takes at most ${share.toFixed(2)} %.`);
  if (!state.paused) timer = setTimeout(look, interval);
}

function show(view) {
  state.view = view;
  for (const button of by("views").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.view === view));
    by(button.dataset.view).hidden = button.dataset.view !== view;
  }
  look();
}

by("views").addEventListener("click", (event) => {
  const view = event.target.closest("button")?.dataset.view;
  if (view) show(view);
});
by("pause").addEventListener("click", () => {
  state.paused = !state.paused;
  by("pause").setAttribute("aria-pressed", String(state.paused));
  look();
});
by("close").addEventListener("click", () => by("detail").close());
for (const id of ["label", "place"]) by(id).addEventListener("input", () => { state.since = null; look(); });
for (const id of ["state", "top", "group"]) by(id).addEventListener("change", () => { state.since = null; look(); });
look();
