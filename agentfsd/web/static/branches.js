// The first page: fills in what each branch changed and when, and follows what happens.

import { address, ask, el, plural } from "./dom.js";
import { follow } from "./events.js";

const table = document.querySelector("table.branches tbody");
const known = new Map(); // by branch: what it changed, to fill in at once when the rows are renewed
const touched = new Set(); // branches in which something has changed since the server was last asked about them
const waiting = new Set();
const restedAt = new Map(); // by branch: the earliest time to ask again, as slow answers take time from the agents
const REST = 20; // the pause before asking again, as a multiple of the time that the answer took
const OF_FILES = new Set(["created", "modified", "deleted", "renamed", "attributes"]);
let busy = false;

let amounts = {}; // by branch: how many changes it holds, which is known before anything else about them

// The number of changes, and beneath it what they are, once that is known: the same words at any time.
function show(row) {
  const found = known.get(row.dataset.branch);
  const amount = amounts[row.dataset.branch];
  if (!found && !amount) return;
  const count = found ? found.added + found.modified + found.deleted : amount.changes;
  const words = count ? el("span", { class: "counts" }, (found || amount.counted ? "" : "~") + plural(count, "change")) : el("span", { class: "muted" }, "none");
  const parts = found ? [["plus", found.added, "added"], ["tilde", found.modified, "modified"], ["minus", found.deleted, "deleted"]].filter(([, number]) => number) : [];
  const kinds = parts.map(([kind, number, word]) => el("span", { class: kind }, `${number.toLocaleString("en")} ${word}`));
  const git = (found ?? amount).git.map((sentence) => el("small", { class: "muted git" }, sentence));
  const what = row.querySelector(".amount .what");
  what.classList.remove("muted");
  what.replaceChildren(words, kinds.length ? el("small", { class: "counts kinds" }, ...kinds) : "", ...git);
  if (found?.when) row.querySelector(".when").textContent = found.when;
}

function rowOf(branch) {
  return [...table.rows].find((row) => row.dataset.branch === branch);
}

async function work() {
  if (busy) return;
  busy = true;
  while (waiting.size) {
    const changed = (branch) => amounts[branch]?.changes ?? 0;
    const branch = [...waiting].sort((one, other) => changed(one) - changed(other))[0]; // the branch with the fewest changes first, as its answer is the quickest
    waiting.delete(branch);
    const row = rowOf(branch);
    if (!row) continue;
    const rest = (restedAt.get(branch) ?? 0) - performance.now();
    if (rest > 0) {
      later(branch, rest);
      continue;
    }
    const begun = performance.now();
    try {
      const found = await ask(address("/api/changed", { ref: branch }));
      restedAt.set(branch, performance.now() + REST * (performance.now() - begun));
      known.set(branch, found);
      const now = rowOf(branch); // the rows may have been renewed meanwhile
      if (now) show(now);
    } catch {
      // keep what the page showed at first
    }
  }
  busy = false;
}

const dueLater = new Set();

function later(branch, rest) {
  if (dueLater.has(branch)) return;
  dueLater.add(branch);
  setTimeout(() => {
    dueLater.delete(branch);
    if (document.hidden) return;
    waiting.add(branch);
    work();
  }, rest);
}

function fill() {
  for (const row of table.rows) {
    const branch = row.dataset.branch;
    show(row);
    if (touched.has(branch) || (amounts[branch]?.changes && !known.has(branch))) waiting.add(branch);
  }
  touched.clear();
  work();
}

async function count() {
  try {
    amounts = await ask("/api/amounts");
  } catch {
    for (const row of table.rows) if (!known.has(row.dataset.branch)) row.querySelector(".amount .what").textContent = "not known";
  }
  fill();
}

async function renew() {
  const response = await fetch("/", { credentials: "same-origin" });
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const chosen = new Set([...table.querySelectorAll("input:checked")].map((input) => input.value));
  const focused = document.activeElement?.closest?.("tr")?.dataset.branch;
  const place = focused && [...rowOf(focused).querySelectorAll("a, input")].indexOf(document.activeElement);
  table.replaceChildren(...page.querySelector("table.branches tbody").rows);
  for (const input of table.querySelectorAll("input")) input.checked = chosen.has(input.value);
  if (focused && rowOf(focused)) rowOf(focused).querySelectorAll("a, input")[place]?.focus();
  document.querySelector("section.empty")?.remove();
  document.querySelector(".bar").hidden = table.rows.length < 2;
  document.dispatchEvent(new Event("rows-renewed"));
  fill(); // at once what was known before
  await count();
}

let due = null;
let isMore = false; // processes or branches have changed too, not only files
follow("", {
  happened(event) {
    touched.add(event.branch);
    isMore ||= !OF_FILES.has(event.kind);
    due ??= setTimeout(() => {
      due = null;
      if (isMore) renew();
      else fill();
      isMore = false;
    }, 700);
  },
});
setInterval(() => {
  if (document.hidden) return;
  for (const branch of known.keys()) touched.add(branch); // the age of the last change, in words, has changed
  renew();
}, 60_000);
count();
