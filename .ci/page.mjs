// Drives the page of a door in Debian's Chromium over its debugging protocol, and checks it with
// axe-core: no violation in three schemes, the keyboard alone, 100 000 processes that scroll, and a
// focus that survives refreshes. Screenshots are left in the directory of the second argument.
//
// Usage: node .ci/page.mjs LINK DIRECTORY   (see the step `page` of .ci/deep)
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [link, directory, count, label = "teller 7"] = process.argv.slice(2);
const require = createRequire(join(process.cwd(), "package.json"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const browser = await puppeteer.launch({
  executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"],
});
const page = await browser.newPage();
const problems = [];
page.on("pageerror", (error) => problems.push(error.message));
page.on("console", (message) => { if (message.type() === "error") problems.push(message.text()); });
await page.setViewport({ width: 1280, height: 900 });
await page.goto(link);
assert.equal(new URL(page.url()).search, "", "the token is not in the address of the page");
await page.waitForSelector("#plots canvas");

const views = ["overview", "waits", "processes", "all", "groups", "tree", "crashes", "workers", "pools"];
const show = async (view) => {
  await page.click(`[data-view="${view}"]`);
  await page.waitForSelector(`#${view}:not([hidden])`);
  await new Promise((done) => setTimeout(done, 400));
};

// Reading 100 000 processes takes a moment; each look is awaited by the text it leaves.
const schemes = [
  ["light", [{ name: "prefers-color-scheme", value: "light" }]],
  ["dark", [{ name: "prefers-color-scheme", value: "dark" }]],
  ["forced", [{ name: "forced-colors", value: "active" }]],
];
const client = await page.createCDPSession();
let checked = 0;
for (const [scheme, features] of schemes) {
  await client.send("Emulation.setEmulatedMedia", { features });
  for (const view of views) {
    await show(view);
    await client.send("Runtime.evaluate", { expression: axe });
    const result = await page.evaluate(() => window.axe.run());
    const said = result.violations.map((found) => `${found.id}: ${found.nodes.map((node) => node.html).join(" ")}`);
    assert.deepEqual(said, [], `${view} in ${scheme}`);
    await page.screenshot({ path: join(directory, `${view}-${scheme}.png`) });
    checked++;
  }
}
console.log(`axe-core: no violation in ${checked} pages`);
await client.send("Emulation.setEmulatedMedia", { features: [] });

// The keyboard alone: sort, search, open, close.
await show("processes");
await page.focus("#processes-table th button");
await page.keyboard.press("Tab");
await page.keyboard.press("Enter");
await page.waitForSelector('#processes-table th[aria-sort="descending"]');
await page.focus("#label");
await page.keyboard.type(label);
await page.waitForFunction(() => document.querySelector("#processes-table caption").textContent.includes(" of "));
await page.waitForFunction((label) => [...document.querySelectorAll("#processes-table tbody tr")].every((row) => row.textContent.includes(label)), {}, label);
await page.focus("#processes-table td button");
await page.keyboard.press("Enter");
await page.waitForSelector("#detail[open] tbody tr");
const pid = await page.$eval("#detail-title", (node) => node.textContent.split(" ")[1]);
await page.keyboard.press("Escape");
await page.waitForSelector("#detail:not([open])");
assert.equal(await page.evaluate(() => document.activeElement.dataset.pid), pid, "the focus comes back");

// The focus survives twenty events of the door, one a second, and twenty looks for other words.
const focused = () => page.evaluate(() => document.activeElement.dataset.pid);
await new Promise((done) => setTimeout(done, 20_500));
assert.equal(await focused(), pid, "the focus is lost");
const refreshes = await page.evaluate(async () => {
  const rate = document.getElementById("rate");
  const focused = document.activeElement;
  for (let count = 0; count < 20; count++) {
    document.getElementById("label").dispatchEvent(new Event("input"));
    await new Promise((done) => setTimeout(done, 150));
    if (document.activeElement !== focused && document.activeElement.dataset.pid !== focused.dataset.pid) return count;
    if (rate.textContent.includes("FAILED")) return rate.textContent;
  }
  return "all";
});
assert.equal(refreshes, "all", "the focus is lost");
console.log("focus: kept over 20 events and 20 looks");

// The overview: a picture for each of six series, and their figures in the table.
await show("overview");
assert.equal(await page.$$eval("#plots canvas[role=img][aria-label]", (all) => all.length), 6);
const figures = await page.$$eval("#plots-table tbody tr", (rows) => rows.map((row) => row.textContent));
assert.ok(figures.some((row) => row.startsWith("Time from wake to run, 99 %")), figures.join("; "));
const { points } = await page.evaluate(async () => (await fetch("/history")).json());
assert.ok(points.length >= 2 && points[0].wake.length === 27, "the door keeps points before somebody looks");

// The tree folds by the keyboard, and keeps its focus over events.
await show("tree");
const treeRows = () => page.$$eval("#tree-table tbody tr", (rows) => rows.length);
const unfolded = await treeRows();
assert.ok(unfolded >= 2, "there is a supervisor with a child");
await page.focus('#tree-table tbody tr[tabindex="0"]');
await page.keyboard.press("ArrowLeft");
assert.equal(await treeRows(), 1, "it is folded");
assert.equal(await page.$eval("#tree-table tbody tr", (row) => row.getAttribute("aria-expanded")), "false");
await page.keyboard.press("ArrowRight");
await page.keyboard.press("ArrowDown");
const child = await page.evaluate(() => document.activeElement.dataset.pid);
await new Promise((done) => setTimeout(done, 2500));
assert.equal(await page.evaluate(() => document.activeElement.dataset.pid), child, "the focus is lost");
assert.equal(await treeRows(), unfolded);

// The graph of waits: p1 to p3 wait in a circle, p4 for one of them, p5 for itself, and p6 for p7.
const graph = await page.evaluate(async () => {
  const { makeWaits } = await import("/graph.js");
  const opened = [];
  const container = document.createElement("div");
  document.body.append(container);
  const waits = [["p1", "p2"], ["p2", "p3"], ["p3", "p1"], ["p4", "p1"], ["p5", "p5"], ["p6", "p7"], ["p8", null]];
  const rows = waits.map(([pid, target]) => ({ pid, label: null, location: "a.rs:1", wait: { reasons: ["reply"], target, at_least_ms: 0 } }));
  const words = makeWaits(container, (pid) => opened.push(pid))(rows);
  const pids = (selector) => [...container.querySelectorAll(selector)].map((node) => node.dataset.pid).sort().join();
  container.querySelector('[data-pid="p4"]').dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
  const found = { words, all: pids(".node"), bad: pids(".node.bad"), edges: container.querySelectorAll(".edge").length, opened: opened.join() };
  container.remove();
  return found;
});
assert.deepEqual(graph, {
  words: "6 processes wait for others; CYCLE: 4 of them wait in circles.",
  all: "p1,p2,p3,p4,p5,p6,p7", bad: "p1,p2,p3,p5", edges: 6, opened: "p4",
});
console.log("overview, tree and waits: as expected");

// The timeline: the table has its places, and a click opens the process.
await show("workers");
for (const window of ["10000", "1000"]) {
  await page.select("#window", window);
  await page.waitForSelector("#locations-table tbody td button");
}
const isOpened = await page.evaluate(async () => {
  const canvas = document.getElementById("timeline");
  const { left, top, width, height } = canvas.getBoundingClientRect();
  for (let y = 15; y < height - 20; y += 30) {
    for (let x = 82; x < width; x += 4) {
      canvas.dispatchEvent(new MouseEvent("click", { clientX: left + x, clientY: top + y }));
      if (document.getElementById("detail").open) return true;
    }
  }
  return false;
});
assert.ok(isOpened, "no slice of the timeline opens a process");
await page.keyboard.press("Escape");
await show("pools");
await page.waitForFunction(() => document.getElementById("pools-table").textContent.includes("blocking"));
console.log("timeline and pools: shown");

// Pausing ends the stream, and the rate is told.
await page.click("#pause");
await page.waitForFunction(() => document.getElementById("rate").textContent === "Paused.");
await page.click("#pause");
await page.waitForFunction(() => /A look each [0-9.]+ s takes [0-9.]+ %/.test(document.getElementById("rate").textContent));

// All processes scroll.
await show("all");
await page.waitForFunction((count) => Number(document.querySelector("#all-list .scroll").getAttribute("aria-rowcount")) > count, {}, Number(count));
const scrolled = await page.evaluate(async () => {
  const scroller = document.querySelector("#all-list .scroll");
  const nodes = scroller.querySelectorAll("*").length;
  const begin = performance.now();
  let frames = 0;
  while (performance.now() - begin < 2000) {
    scroller.scrollTop = (scroller.scrollTop + 5000) % scroller.scrollHeight;
    await new Promise(requestAnimationFrame);
    frames++;
  }
  scroller.scrollTop = scroller.scrollHeight;
  await new Promise((done) => setTimeout(done, 700));
  const last = [...scroller.querySelectorAll(".line:not(.head)")].filter((line) => line.style.display !== "none").at(-1);
  return { frames: frames / 2, nodes, index: last.getAttribute("aria-rowindex"), rows: scroller.getAttribute("aria-rowcount") };
});
assert.ok(scrolled.frames >= 30, `${scrolled.frames} frames per second`);
assert.ok(scrolled.nodes < 2000, `${scrolled.nodes} nodes`);
assert.equal(scrolled.index, scrolled.rows, "the last row is reached");
console.log(`scroll: ${scrolled.rows} rows, ${scrolled.frames} frames per second, ${scrolled.nodes} nodes`);
await page.screenshot({ path: join(directory, "scrolled.png") });
assert.deepEqual(problems, [], "errors in the console");
await browser.close();
