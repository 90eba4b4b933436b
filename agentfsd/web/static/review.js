// The page that reviews a branch: all its files one after another. Their lines are loaded when they come near the window.

import { address, ask, el, isNarrow, plural, refusal } from "./dom.js";
import { follow } from "./events.js";
import { List } from "./list.js";
import { run } from "./review_acts.js";
import { amounts, card, drawBody, showCounts, showState } from "./review_card.js";
import { HunkCursor } from "./review_keys.js";
import { ReviewTree, inTreeOrder } from "./review_tree.js";
import { ViewedMarks } from "./viewed_marks.js";

const TOGETHER = 20; // files that are loaded at once
const IN_SIGHT = 5; // files that are loaded first
const MOST_ADDRESS = 16_000; // characters of paths in an address: the server reads 64 KiB of it
const AHEAD = "1500px"; // how near to the window they are loaded
const LINE = 20; // the height of a line, about
const AROUND = 8; // lines of a file that do not differ and are shown, about
const MOST_LINES = 500; // a file with more is folded
const AT_FIRST = 30; // cards that are made before the page is shown
const AT_ONCE = 100; // cards that are made without a pause later
const box = document.getElementById("review");
const cards = document.getElementById("cards");
const sum = document.getElementById("sum");
const git = document.getElementById("git");
const moved = document.getElementById("moved");
const done = document.getElementById("done");
const search = document.getElementById("search");
const layout = document.getElementById("layout");
const { branch, name, since } = box.dataset;
const writable = box.dataset.writable !== undefined;
const marks = new ViewedMarks(branch, box.dataset.csrf);
let files = [];
let found = [];
let counts = {};
let version = ""; // of the list of changes
let unified = localStorage.getItem("layout") === "unified";
let quietUntil = 0; // until then, what happens in the branch is what this page did
let isCounted = false;

// -- what is said of all files

const isMerging = () => document.body.classList.contains("merging"); // it can be neither committed nor merged until that is finished

function tell() {
  const count = files.filter((file) => file.isViewed).length;
  document.getElementById("viewed").textContent = files.length ? `${count.toLocaleString("en")} of ${files.length.toLocaleString("en")} viewed` : "";
  renewTree();
  if (!writable) return;
  const hunks = files.reduce((total, file) => total + file.chosen.size, 0);
  const some = plural(hunks, "hunk");
  document.getElementById("chosen").textContent = hunks ? `${some} of ${plural(files.filter((file) => file.chosen.size).length, "file")}` : "Nothing is chosen.";
  document.getElementById("commit").textContent = hunks ? `Commit ${some}…` : "Commit all…";
  const merge = document.getElementById("merge");
  if (merge) merge.textContent = hunks ? `Merge ${some} into…` : "Merge all into…";
  document.getElementById("take-back").disabled = !hunks;
  for (const id of ["commit", "merge"]) if (document.getElementById(id)) document.getElementById(id).disabled = isMerging() || (!files.length && !git.childElementCount);
}

// -- loading

const waiting = new Set();
let busy = false;

const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const file = files[Number(entry.target.dataset.index)];
      if (!file || file.card !== entry.target) continue;
      if (entry.isIntersecting && !file.data) waiting.add(file);
      else waiting.delete(file); // it was scrolled past before its turn came
    }
    work();
  },
  { rootMargin: `${AHEAD} 0px` },
);

async function work() {
  if (busy) return;
  busy = true;
  while (waiting.size) {
    let length = 0; // of the address that asks for them
    const few = [...waiting].slice(0, files.some((file) => file.data) ? TOGETHER : IN_SIGHT);
    const batch = few.filter((file, index) => (length += file.change.key.length) < MOST_ADDRESS || index === 0);
    for (const file of batch) waiting.delete(file);
    await load(batch);
  }
  busy = false;
  if (!isCounted) count(); // after the first hunks, as counting takes longer than they do
}

function load(batch, isOpen = false) {
  const wanted = batch.filter((file) => isOpen || (!file.data && !file.loading));
  const promise = wanted.length ? fetched(wanted, isOpen) : null;
  for (const file of wanted) file.loading = promise;
  return Promise.all(batch.map((file) => file.loading));
}

async function fetched(wanted, isOpen) {
  const paths = wanted.map((file) => `path=${file.change.key}`).join("&");
  try {
    const said = await ask(`${address("/api/review/files", { branch, open: isOpen ? "1" : "" })}&${paths}`);
    said.forEach((data, index) => filled(wanted[index], data));
  } catch (error) {
    for (const file of wanted) {
      file.loading = null;
      file.card.querySelector(".card-body").replaceChildren(refusal(error));
    }
  }
}

function filled(file, data) {
  const isFirst = !file.data;
  file.data = data;
  near.unobserve(file.card);
  if (isFirst && file.isViewed && !marks.isOf(file)) {
    Object.assign(file, { isViewed: false, isFolded: false, isChanged: true });
    marks.keep(file);
    tell();
  }
  drawBody(file, page);
}

// -- the cards: first those in sight, the rest when there is time

let built = 0; // how many files have one

function build(count) {
  const made = files.slice(built, built + count);
  for (const file of made) {
    file.card = card(file, built++, page);
    showState(file);
    estimate(file);
    near.observe(file.card);
  }
  cards.append(...made.map((file) => file.card));
}

function buildRest() {
  if (built >= files.length) return;
  build(AT_ONCE);
  setTimeout(buildRest);
}

// Give a card about the height that it will have, so that the scroll bar tells the truth.
function estimate(file) {
  const lines = counts[file.change.key];
  if (file.data || !file.card || !lines) return;
  showCounts(file, ...lines);
  file.card.querySelector(".card-body").style.minHeight = `${Math.min(MOST_LINES, lines[0] + lines[1] + AROUND) * LINE}px`;
}

// -- what a card can ask for

const page = {
  branch,
  name,
  since,
  writable,
  unified: () => unified,
  fold(file) {
    file.isFolded = !file.isFolded;
    showState(file);
  },
  view(file, isViewed) {
    if (!file.data) return load([file]).then(() => page.view(file, isViewed));
    Object.assign(file, { isViewed, isFolded: isViewed, isChanged: false });
    marks.keep(file);
    showState(file);
    tell();
  },
  choose(file, number, isChosen) {
    if (isChosen) file.chosen.add(number);
    else file.chosen.delete(number);
    showState(file);
    tell();
  },
  async chooseFile(file, isChosen) {
    await load([file]);
    file.chosen = new Set(isChosen && file.data && file.data.choosable !== false ? file.data.hunks?.keys() : []);
    showState(file);
    tell();
  },
  open: (file) => load([file], true),
  whole: (file) => ask(address("/api/review/whole", { branch, path: file.change.key })),
};

// -- the list at the side

const tree = new ReviewTree({ counts: (key) => counts[key] });
const list = new List(document.getElementById("list"), { role: "treeitem", draw: (index) => tree.draw(index), open: take, key: arrow });

function take(index) {
  if (!tree.turn(index)) return show(tree.rows[index].file);
  renewTree();
}

function arrow(event, index) {
  if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return false;
  if (tree.turn(index, event.key === "ArrowRight")) renewTree();
  return true;
}

function renewTree() {
  tree.renew(found);
  list.box.parentElement.style.setProperty("--files", tree.rows.length);
  list.renew(tree.rows.length);
}

function filter() {
  const wanted = search.value.toLowerCase();
  found = wanted ? files.filter(({ change }) => `${change.path}\n${change.was ?? ""}`.toLowerCase().includes(wanted)) : files;
  renewTree();
}

// Mark a file in the tree, and open the directories above it.
function reveal(file) {
  if (tree.indexOf(file) < 0 && found.includes(file)) {
    tree.reveal(file);
    renewTree();
  }
  const index = tree.indexOf(file);
  if (index < 0) return;
  list.chosen = index;
  list.go(index);
}

async function show(file) {
  build(files.length);
  file.card.scrollIntoView({ block: "start" });
  await load([file]);
  file.card.scrollIntoView({ block: "start" });
  cursor.point(file.card.querySelector(".hunk"), false);
}

const cursor = new HunkCursor({ files: () => files, reveal, load, show, view: (file) => page.view(file, !file.isViewed), commit: () => writable && commit(), buildAll: () => build(files.length) });

// -- what becomes of it

function form(extra = {}) {
  const given = Object.fromEntries(new FormData(document.getElementById("acts")));
  const chosen = files.filter((file) => file.chosen.size);
  const picks = chosen.map((file) => [file.change.key, file.data.version, [...file.chosen].sort((one, other) => one - other)]);
  const seen = files.filter((file) => file.data && file.data.choosable !== false).map((file) => [file.change.index, file.data.version]);
  return { ...given, ...(picks.length ? { picks: JSON.stringify(picks) } : { all: "1", version, seen: JSON.stringify(seen) }), ...extra };
}

function amount() {
  const hunks = files.reduce((total, file) => total + file.chosen.size, 0);
  return hunks ? plural(hunks, "hunk") : "everything";
}

function did(outcome) {
  done.hidden = false;
  done.querySelector("span").textContent = outcome.said.join(" ");
  done.querySelector(".undo").hidden = !outcome.undoable;
  const on = done.querySelector(".on");
  on.hidden = !outcome.link;
  if (outcome.link) [on.href, on.textContent] = outcome.link;
  for (const file of files) file.chosen.clear();
  again();
}

const act = (path, title, verb, extra, danger = false) => (done.hidden = true) && run({ path: `/api/review/${path}`, title, verb, danger, form: form(extra) }, { done: did, again });

function commit() {
  if (document.getElementById("commit").disabled) return;
  act("commit", `Commit ${amount()} of ${name}?`, "Commit", {});
}

function wire() {
  document.getElementById("commit").addEventListener("click", commit);
  const into = document.getElementById("into");
  document.getElementById("merge")?.addEventListener("click", () => act("merge", `Merge ${amount()} of ${name} into ${into.selectedOptions[0].text}?`, "Merge", { into: into.value }));
  document.getElementById("take-back").addEventListener("click", () => act("take-back", `Take back ${amount()} in ${name}?`, "Take back", {}, true));
}

if (writable) wire();
search.addEventListener("input", filter);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && found.length) show(found[0]).then(() => list.box.focus());
});

// -- the page as a whole

function drawLayout() {
  layout.textContent = unified ? "Side by side" : "One column";
  for (const file of files) if (file.data && file.card) drawBody(file, page);
}

layout.addEventListener("click", () => {
  unified = !unified;
  localStorage.setItem("layout", unified ? "unified" : "sides");
  drawLayout();
});
let wasNarrow = isNarrow();
addEventListener("resize", () => {
  if (wasNarrow !== isNarrow()) drawLayout();
  wasNarrow = isNarrow();
});

// Leave out added and deleted directories whose files are in the list.
function worthwhile(changes) {
  const above = new Set();
  for (const { key, status } of changes) {
    if (!"ADR".includes(status)) continue;
    for (let cut = key.lastIndexOf("/"); cut > 0 && !above.has(key.slice(0, cut)); cut = key.lastIndexOf("/", cut - 1)) above.add(key.slice(0, cut));
  }
  return changes.filter((change) => !("AD".includes(change.status) && above.has(change.key)));
}

function nothing() {
  return el("section", { class: "empty" }, el("h2", {}, "Nothing to review"), el("p", {}, `${name} has no changes${git.childElementCount ? " outside git's own files" : ""}. What an agent changes in it appears here.`), el("a", { class: "button", href: "/" }, "Branches"));
}

function note(sentence) {
  moved.querySelector("span").textContent = sentence;
  moved.hidden = false;
}

async function again() {
  const place = scrollY;
  moved.hidden = true;
  quietUntil = performance.now() + 1500;
  cards.inert = true; // what is chosen meanwhile would be forgotten
  await start();
  cards.inert = false;
  build(files.length);
  scrollTo(0, place);
}

async function start() {
  layout.textContent = unified ? "Side by side" : "One column";
  for (const button of document.querySelectorAll("#commit, #merge, #take-back")) button.disabled = true; // until it is known what there is
  let said;
  try {
    [said] = await Promise.all([ask(address("/api/review", { branch })), marks.read()]);
  } catch (error) {
    sum.textContent = "";
    cards.replaceChildren(refusal(error));
    return;
  }
  near.disconnect();
  waiting.clear();
  cursor.at = null;
  counts = {};
  version = said.version;
  said.changes.forEach((change, index) => (change.index = index));
  git.replaceChildren(...said.git.map((sentence) => el("div", {}, sentence)));
  files = inTreeOrder(worthwhile(said.changes).map((change) => ({ change, data: null, chosen: new Set(), isViewed: marks.has(change), isFolded: marks.has(change), isChanged: false, loading: null })));
  cards.replaceChildren(...(files.length ? [] : [nothing()]));
  document.body.classList.toggle("without", !files.length);
  built = 0;
  build(AT_FIRST);
  setTimeout(buildRest, 200);
  sum.replaceChildren(files.length ? `${said.what} in ${plural(files.length, "file")}` : "");
  isCounted = !files.length;
  filter();
  tell();
}

async function count() {
  const asked = files;
  isCounted = true;
  try {
    const said = await ask(address("/api/review/counts", { branch }));
    if (files !== asked) return;
    counts = said;
  } catch {
    return; // the list does without
  }
  const lines = [0, 1].map((side) => Object.values(counts).reduce((total, each) => total + Math.max(0, each[side]), 0));
  sum.append(" ", ...amounts(...lines).flatMap((each) => [each, " "]));
  files.forEach(estimate);
  renewTree();
}

document.getElementById("again").addEventListener("click", again);
document.addEventListener("merge-state", tell);
document.addEventListener("decided", again);
follow(branch, {
  happened(event) {
    if (performance.now() > quietUntil && ["created", "modified", "deleted", "renamed", "attributes", "restore", "merge"].includes(event.kind)) note("The branch has changed since this page was loaded.");
  },
  gone: (sentence) => sentence.startsWith("The branch was deleted") && note(sentence),
});
start();
