// The page of a door. The door sends what the page shows, as seldom as it takes to use at most 1 % of
// the processors.
import { bytes, duration, number, percent, pids, shortLocation, standing, time, title, wait } from "/format.js";
import { drawCluster, makeWaits } from "/graph.js";
import { makePlots } from "/plots.js";
import { makeList, makeTable, setText } from "/table.js";
import { draw, locations, processAt } from "/timeline.js";
import { makeTree } from "/tree.js";

const RETRY = 2000;

const by = (id) => document.getElementById(id);
const state = { view: "overview", points: [], sort: "samples", paused: false, crash: null, stalls: null, workers: null, timeline: null };

async function ask(target, signal, method = "GET") {
  const answer = await fetch(target, { cache: "no-store", method, signal });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer;
}

const get = async (target) => (await ask(target)).json();

// Reads events until the stream ends or is stopped.
async function follow(target, signal, show) {
  const reader = (await ask(target, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the program has ended, or has closed its door");
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (event.startsWith("data: ")) await show(JSON.parse(event.slice(6)));
    }
  }
}

const detail = makeTable(by("detail-table"), "Its figures", [
  { title: "What", value: (row) => row[0] },
  { title: "Value", value: (row) => row[1], wide: true },
]);

async function open(pid) {
  state.pid = pid;
  by("detail").showModal();
  by("actions").hidden = state.about?.actions !== true;
  setText(by("acted"), "");
  setText(by("detail-title"), `Process ${pid}`);
  await fill(pid);
}

async function fill(pid) {
  try {
    const { process } = await get(`/process/${encodeURIComponent(pid)}`);
    detail.update([
      ["label", process.label ?? "-"], ["name", process.name ?? "-"], ["spawned at", process.location],
      ["kind", process.kind], ["receives", process.message], ["state", standing(process)],
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

// Suspends the shown process, or lets it go on.
async function act(action, done) {
  const target = `/process/${encodeURIComponent(state.pid)}/${action}`;
  try {
    await ask(target, undefined, "POST");
    setText(by("acted"), done);
  } catch (error) {
    setText(by("acted"), error.message);
  }
  await fill(state.pid);
}

const sort = (key) => { state.sort = key; look(); };
const steps = (row) => row.steps_in_window ?? row.steps;

const tables = {
  processes: makeTable(by("processes-table"), "Processes", [
    { title: "PID", value: (row) => row.pid, pid: true },
    { title: "State", value: standing },
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
    { title: "Group", wide: true, value: (row) => [row.state, row.reasons && (row.reasons.join(", ") || "a waker"), row.location && shortLocation(row.location)].filter(Boolean).join(" at ") || "does not wait" },
  ], { sort }),
  tree: makeTree(by("tree-table"), "Supervisors and their children", open),
  plots: makeTable(by("plots-table"), "Figures of the last ten minutes", [
    { title: "What", value: (row) => row.name, wide: true },
    { title: "Now", value: (row) => row.now, right: true },
    { title: "At most", value: (row) => row.most, right: true },
  ]),
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
    { title: "Busy %", value: (row) => (row.busy === null ? "-" : percent(row.busy)), right: true },
    { title: "Queue", value: (row) => number(row.queue), right: true },
    { title: "Steps", value: (row) => number(row.steps), right: true },
    { title: "Steals", value: (row) => number(row.steals), right: true },
    { title: "Parks", value: (row) => number(row.parks), right: true },
  ]),
  locations: makeTable(by("locations-table"), "Locations of the timeline, by their part of the time of all workers", [
    { title: "Mark", value: (row) => row.letter },
    { title: "Time %", value: (row) => percent(row.share), right: true },
    { title: "Spawned at", value: (row) => shortLocation(row.location), wide: true },
    { title: "Last", value: (row) => row.pid, pid: true },
  ], { open }),
  pools: makeTable(by("pools-table"), "Pools", [
    { title: "Name", value: (row) => row.name, wide: true },
    { title: "Busy", value: (row) => number(row.busy), right: true },
    { title: "Idle", value: (row) => number(row.idle), right: true },
    { title: "At most", value: (row) => (row.capacity > 1e15 ? "no limit" : number(row.capacity)), right: true },
    { title: "Queued", value: (row) => number(row.queued), right: true },
    { title: "Waiting", value: (row) => number(row.waiting), right: true },
    { title: "Completed", value: (row) => number(row.completed), right: true },
    { title: "Panicked", value: (row) => number(row.panicked), right: true, isBad: (row) => row.panicked > 0 },
    { title: "Cancelled", value: (row) => number(row.cancelled), right: true },
    { title: "Refused", value: (row) => number(row.refused), right: true },
    { title: "Workers started", value: (row) => number(row.workers_started), right: true },
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
    const rows = part.rows.map((row) => [row.pid, standing(row), number(row.mailbox), number(row.steps), title(row)]);
    return { rows, total: part.processes };
  },
});

const drawPlots = makePlots(by("plots"));
const drawWaits = makeWaits(by("waits-picture"), open);

// Shows the points of the last ten minutes, with this one. The door has those from before the page.
async function showOverview(event) {
  if (state.points.length === 0) state.points = (await get("/history")).points;
  const [latest, { point }] = [state.points.at(-1), event];
  if (!latest || point.at_us > latest.at_us) state.points.push(point);
  while (state.points[0].at_us < point.at_us - 600e6) state.points.shift();
  if (state.view !== "overview") return;
  tables.plots.update(drawPlots(state.points));
  const cluster = event.sections?.cluster;
  by("cluster").hidden = !cluster;
  if (cluster) setText(by("cluster-words"), drawCluster(by("cluster-picture"), cluster));
}

// The parts of an event that each view shows.
const parts = { overview: "sections", crashes: "crashes", tree: "tree", workers: "timeline", pools: "pools", sections: "sections" };

// A column of a section. Times are in microseconds.
function columnOf(name, isText) {
  const isTime = name.endsWith("_us");
  const show = (value) => (value === null || value === undefined ? "-" : isTime ? time(value) : isText ? value : number(value));
  return { title: (isTime ? name.slice(0, -3) : name).replaceAll("_", " "), value: (row) => show(row[name]), right: !isText, wide: isText };
}

const shown = new Map();

// Shows the tables of all sections. They are made when they are there first, and empty later.
function showSections(sections) {
  const missing = new Set(shown.keys());
  for (const [section, found] of Object.entries(sections)) {
    for (const [name, rows] of Object.entries(found)) {
      if (!Array.isArray(rows) || rows.length === 0) continue;
      const key = `${section}: ${name}`;
      if (!shown.has(key)) {
        const columns = Object.entries(rows[0]).map(([column, value]) => columnOf(column, typeof value === "string"));
        shown.set(key, makeTable(by("sections-tables"), key, columns));
      }
      shown.get(key).update(rows);
      missing.delete(key);
    }
  }
  for (const key of missing) shown.get(key).update([]);
}

function target() {
  const query = new URLSearchParams({ sort: state.sort, top: state.view === "processes" ? by("top").value : "0" });
  if (state.view === "waits") {
    query.set("sort", "age");
    query.set("top", "200");
    query.set("state", "blocked");
  }
  if (state.view === "groups") {
    query.set("group", by("group").value);
    query.set("top", "200");
  }
  if (state.view === "processes") {
    for (const name of ["label", "state", "location"]) if (by(name).value) query.set(name, by(name).value);
  }
  if (state.view === "workers") query.set("ms", by("window").value);
  if (parts[state.view]) query.set("with", parts[state.view]);
  return `/live?${query}`;
}

// Says only what matters to someone who listens: new stalls and crashes.
function tell(workers, latest) {
  const stalls = workers.stalls.blocked + workers.stalls.computing;
  const news = [];
  if (state.stalls !== null && stalls > state.stalls) news.push(`${stalls - state.stalls} new stalls.`);
  if (state.crash !== null && latest && latest.number > state.crash) news.push(`${title(latest)} failed: ${latest.exit}`);
  state.stalls = stalls;
  state.crash = latest?.number ?? 0;
  if (news.length > 0) setText(by("news"), news.join(" "));
}

// The workers, each with the part of the time since the event before in which it was busy.
function rowsOf(now) {
  const before = state.workers;
  const passed = before ? now.now_us - before.now_us : 0;
  return now.workers.map((worker, at) => {
    const busy = worker.busy_us - (before?.workers[at]?.busy_us ?? 0);
    return { ...worker, worker: at, busy: passed > 0 ? Math.min(1, busy / passed) : null };
  });
}

function showWorkers(workers) {
  tables.workers.update(rowsOf(workers));
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
}

function showRate(event) {
  const rate = `A look each ${(event.interval_ms / 1000).toFixed(1)} s takes ${(event.share * 100).toFixed(2)} % of the processors.`;
  setText(by("rate"), rate);
}

async function showEvent(event) {
  const about = state.about ??= await get("/about");
  const { view, workers } = event;
  tell(workers, event.latest_crash);
  document.title = `${about.program} - procession`;
  setText(by("title"), `${about.program}, scheduler ${about.name}`);
  setText(by("summary"), `System process ${about.system_pid}, ${about.workers} workers, ${number(view.processes)} processes, ${number(workers.stalls.computing + workers.stalls.blocked)} stalls, ${number(state.crash)} crashes.`);
  if (state.view === "processes") {
    const span = view.window_ms ? `in the last ${duration(view.window_ms)}` : "since their start";
    tables.processes.update(view.rows, `${number(view.rows.length)} of ${number(view.matched)} processes, by ${state.sort}, ${span}`, state.sort);
  }
  if (state.view === "all") await list.update();
  if (state.view === "groups") tables.groups.update(view.groups, `Groups of ${number(view.matched)} processes, by ${state.sort}`, state.sort);
  await showOverview(event);
  if (state.view === "waits") setText(by("waits-words"), drawWaits(view.rows));
  if (event.tree) tables.tree.update(event.tree.nodes);
  if (event.crashes) tables.crashes.update(event.crashes);
  if (event.pools) tables.pools.update(event.pools);
  if (event.sections && state.view === "sections") showSections(event.sections);
  if (state.view === "workers") showWorkers(workers);
  if (event.timeline) {
    state.timeline = event.timeline;
    tables.locations.update(locations(event.timeline));
    draw(by("timeline"), event.timeline);
  }
  state.workers = workers;
  showRate(event);
}

let stream = null;
let retry = null;

// Follows what is shown from now on.
async function look() {
  clearTimeout(retry);
  stream?.abort();
  if (state.paused) return setText(by("rate"), "Paused.");
  const own = stream = new AbortController();
  try {
    await follow(target(), own.signal, async (event) => {
      if (!own.signal.aborted) await showEvent(event);
    });
  } catch (error) {
    // Another look has taken its place.
    if (own.signal.aborted) return;
    setText(by("rate"), `FAILED: ${error.message}. The next try is in 2 s.`);
    retry = setTimeout(look, RETRY);
  }
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
by("suspend").addEventListener("click", () => act("suspend", "Suspended for 5 s."));
by("resume").addEventListener("click", () => act("resume", "Goes on."));
by("close").addEventListener("click", () => by("detail").close());
by("timeline").addEventListener("click", (event) => {
  const pid = processAt(by("timeline"), state.timeline, event);
  if (pid) open(pid);
});
for (const id of ["label", "location"]) by(id).addEventListener("input", look);
for (const id of ["state", "top", "group", "window"]) by(id).addEventListener("change", look);
look();
