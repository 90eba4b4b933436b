// The page that compares two states: the list of changes, and the chosen file side by side.

import { drawn } from "./difference.js";
import { address, ask, backButton, el, images, isNarrow, mark, plural, read, refusal, size } from "./dom.js";
import { List } from "./list.js";

const split = document.getElementById("compare");
const content = document.getElementById("content");
const sum = document.getElementById("sum");
const git = document.getElementById("git"); // what was done with git, in sentences
const search = document.getElementById("search");
const { a, b } = split.dataset;
const MOST_LINES = 5000; // more lines of a new file are not shown here
const layoutButton = document.getElementById("layout");
const blanks = document.getElementById("blanks");
let all = [];
let changed = 0; // how many changes the server counts
let found = [];
let counts = {};
let current = null; // { change, diffs, isWhole, whole }
let unified = localStorage.getItem("layout") === "unified";
blanks.checked = localStorage.getItem("blanks") === "left out";

document.getElementById("swap").addEventListener("click", () => {
  location.href = address("/compare", a ? { a: b, b: a } : { a: b, b });
});
if (!a) document.getElementById("swap").disabled = true;

function rowOf(index) {
  const change = found[index];
  const cut = change.path.lastIndexOf("/") + 1;
  const title = (change.was ? `${change.was} → ` : "") + change.path + (change.note ? ` (${change.note})` : "") + (change.executed ? ` (runs on your side: ${change.executed})` : "");
  const from = change.was ? `  ← ${change.was.slice(0, cut) === change.path.slice(0, cut) ? change.was.slice(cut) : change.was}` : "";
  const label = el("span", { class: "label", title }, el("span", { class: "name" }, change.path.slice(cut)), el("span", { class: "dir" }, from + (cut ? `  ${change.path.slice(0, cut - 1)}` : "")));
  const [added, removed] = counts[change.key] ?? [];
  return el("div", { class: change.status === "D" ? "gone" : "" }, mark(change.status), label, el("span", { class: "extra" }, ...amounts(added, removed)));
}

function amounts(added, removed) {
  const shown = (count) => count.toLocaleString("en");
  return [added > 0 ? el("span", { class: "plus" }, `+${shown(added)}`) : "", removed > 0 ? el("span", { class: "minus" }, `\u2212${shown(removed)}`) : ""];
}

const isGits = (change) => `/${change.key}`.includes("/.git/");

// Hide added and deleted directories, whose files are in the list, and git's own files.
function worthwhile(changes) {
  const above = new Set();
  for (const { key, status } of changes) {
    if (!"ADR".includes(status)) continue;
    for (let cut = key.lastIndexOf("/"); cut > 0 && !above.has(key.slice(0, cut)); cut = key.lastIndexOf("/", cut - 1)) above.add(key.slice(0, cut));
  }
  const kept = changes.filter((change) => !("AD".includes(change.status) && above.has(change.key)));
  return [...kept.filter((change) => !isGits(change)), ...kept.filter(isGits)];
}

const list = new List(document.getElementById("list"), { role: "option", draw: rowOf, open: (index) => open(index) });

function filter() {
  const wanted = search.value.toLowerCase();
  found = wanted ? all.filter((change) => `${change.path}\n${change.was ?? ""}`.toLowerCase().includes(wanted)) : all;
  list.chosen = current ? found.indexOf(current.change) : -1;
  list.renew(found.length);
  const total = plural(changed, "change"); // with the directories that the list leaves out
  const lines = [0, 1].map((side) => Object.values(counts).reduce((sum, each) => sum + Math.max(0, each[side]), 0));
  const words = wanted ? `${found.length.toLocaleString("en")} of ${plural(all.length, "path")}` : total;
  sum.replaceChildren(changed ? words : "", " ", ...(wanted ? [] : amounts(...lines).flatMap((each) => [each, " "])));
}

async function open(index) {
  list.chosen = index;
  list.go(index);
  read(split);
  await show(found[index], false);
}

// Show a new file without a comparison, which takes seconds in a branch with many changes.
async function newFile(change) {
  const view = await ask(address("/api/view", { ref: b, path: change.key }));
  const lines = (view.lines ?? []).slice(0, MOST_LINES);
  const isCut = view.next || lines.length < (view.lines ?? []).length;
  const notes = isCut && lines.length ? [`A long file; shown are its first ${plural(lines.length, "line")}.`] : view.hex ? (images(change.path, "", "").length ? [] : [`This is no text; it has ${size(view.size_bytes)}.`]) : (view.notes ?? []);
  if (view.lines && !lines.length) notes.push("An empty file.");
  return [{ status: "A", notes, hunks: lines.length ? [{ head: "", rows: lines.map((line, index) => ({ new: index + 1, now: line })) }] : [] }];
}

function compared(change, isWhole) {
  return ask(address("/api/diff", { a, b, path: change.key, whole: isWhole ? "1" : "" }));
}

async function show(change, isWhole) {
  const asked = { change, diffs: null, isWhole, whole: null };
  current = asked;
  history.replaceState(history.state, "", address("/compare", { a, b, path: change.key }));
  const late = setTimeout(() => content.replaceChildren(el("p", { class: "empty" }, "Comparing…")), 150);
  try {
    const diffs = await (change.status === "A" ? newFile(change) : compared(change, isWhole));
    if (current !== asked) return;
    current.diffs = diffs;
    draw();
  } catch (error) {
    if (current === asked) content.replaceChildren(head(change, {}), refusal(error));
  } finally {
    clearTimeout(late);
  }
}

async function wholeRows() {
  current.whole ??= compared(current.change, true);
  return (await current.whole).flatMap((diff) => diff.hunks.flatMap((hunk) => hunk.rows));
}

function draw() {
  const { change, diffs } = current;
  layoutButton.textContent = unified ? "Side by side" : "One column";
  content.replaceChildren(head(change, diffs[0] ?? {}));
  if (change.executed) content.append(el("p", { class: "note" }, `This file runs on your side: ${change.executed}.`));
  if (!diffs.length) content.append(el("p", { class: "note" }, change.note ? `It differs in: ${change.note}.` : "A directory; what is in it is listed by itself."));
  for (const diff of diffs) {
    for (const note of diff.notes) content.append(el("p", { class: "note" }, note));
    const layout = { unified: unified || isNarrow() || "AD".includes(diff.status), blanks: blanks.checked };
    content.append(...drawn(diff, layout, wholeRows));
  }
  const before = change.status === "A" ? "" : { ref: a, path: change.was_key || change.key };
  content.append(...images(change.path, before, change.status === "D" ? "" : { ref: b, path: change.key }));
  content.scrollTop = 0;
}

function head(change, diff) {
  const path = { path: change.key };
  const restore = split.dataset.restorable === undefined ? "" : el("a", { href: address("/restore", { ref: a, branch: b, ...path }) }, "Restore this file…");
  const whole = "AD".includes(change.status) || !diff.hunks?.length ? "" : el("button", { type: "button", onclick: () => show(change, !current.isWhole) }, current?.isWhole ? "Only what changed" : "Whole file");
  return el("div", { class: "file-head" }, backButton(split), mark(change.status), el("h2", { class: "mono" }, (change.was ? `${change.was} → ` : "") + change.path), el("span", { class: "facts-line counts" }, ...amounts(diff.added, diff.removed)), el("span", { class: "spacer" }), change.status === "D" ? "" : el("a", { href: address("/files", { ref: b, against: a, ...path }) }, "File"), restore, whole);
}

// Go to the next or previous change in this file, then in the next or previous file.
function leap(step) {
  const places = [...content.querySelectorAll("tr.change")];
  const now = places.findIndex((row) => row.classList.contains("at"));
  const to = places[now < 0 && step < 0 ? -1 : now + step];
  if (!to) return turn(step);
  places[now]?.classList.remove("at");
  to.classList.add("at");
  to.scrollIntoView({ block: "center" });
}

function turn(step) {
  const to = list.chosen + step;
  if (to >= 0 && to < found.length) open(to);
}

function nothing() {
  const name = (select) => select.selectedOptions[0]?.textContent ?? "";
  const [from, to] = document.querySelectorAll("#choose select");
  content.replaceChildren(el("div", { class: "empty" }, el("h2", {}, "No differences"), el("p", {}, `${name(to)} is like ${name(from)}. Choose another state above, or another branch on the first page.`), el("a", { class: "button", href: "/" }, "Branches")));
  read(split);
}

search.addEventListener("input", filter);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && found.length) open(0).then(() => list.box.focus());
});
layoutButton.addEventListener("click", () => {
  unified = !unified;
  localStorage.setItem("layout", unified ? "unified" : "sides");
  if (current?.diffs) draw();
});
blanks.addEventListener("change", () => {
  localStorage.setItem("blanks", blanks.checked ? "left out" : "shown");
  if (current?.diffs) draw();
});
addEventListener("resize", () => {
  const table = content.querySelector("table.diff");
  if (table && current?.diffs && !unified && !"AD".includes(current.change.status) && table.classList.contains("unified") !== isNarrow()) draw();
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input[type=search], select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "n" || event.key === "p") turn(event.key === "n" ? 1 : -1);
  else if (event.key === "j" || event.key === "k") leap(event.key === "j" ? 1 : -1);
});

async function start() {
  try {
    const said = await ask(address("/api/changes", { a, b }));
    all = worthwhile(said.changes);
    changed = said.changes.length;
    git.replaceChildren(...said.git.map((sentence) => el("div", {}, sentence)));
    filter();
    if (!all.length) return nothing();
    const wanted = new RegExp("[?&]path=([^&]*)").exec(location.search)?.[1];
    const index = all.findIndex((change) => change.key === wanted);
    if (index >= 0) open(index);
    else if (!isNarrow()) {
      const first = all.findIndex((change) => "MR".includes(change.status) && !isGits(change));
      open(Math.max(0, first)); // git's own files are the last ones
    }
    list.box.focus({ preventScroll: true });
    if (said.counted) {
      counts = await ask(address("/api/counts", { a, b }));
      filter();
    }
  } catch (error) {
    sum.textContent = "";
    content.replaceChildren(refusal(error));
    read(split);
  }
}

start();
