// The first page: fills in what each branch changed and when, and follows what happens.

import { address, ask, el } from "./dom.js";
import { follow } from "./events.js";

const table = document.querySelector("table.branches tbody");
const known = new Map(); // by branch: what it changed, to be there at once when the rows are renewed
const touched = new Set(); // branches in which something happened since they were asked about
const waiting = new Set();
const restedAt = new Map(); // by branch: before when it is not asked about again: an answer that takes long costs the agents something
const REST = 20; // times as long as the answer took
const OF_FILES = new Set(["created", "modified", "deleted", "renamed", "attributes"]);
let busy = false;

function show(row, found) {
  const amount = row.querySelector(".amount");
  const parts = [["plus", found.added, "added"], ["tilde", found.modified, "modified"], ["minus", found.deleted, "deleted"]].filter(([, count]) => count);
  const counts = parts.map(([kind, count, word]) => el("span", { class: kind }, `${count.toLocaleString("en")} ${word}`));
  amount.replaceChildren(parts.length ? el("span", { class: "counts" }, ...counts) : el("span", { class: "muted" }, "none"));
  if (found.when) row.querySelector(".when").textContent = found.when;
}

function rowOf(branch) {
  return [...table.rows].find((row) => row.dataset.branch === branch);
}

async function work() {
  if (busy) return;
  busy = true;
  while (waiting.size) {
    const changed = (branch) => Number(rowOf(branch)?.dataset.changed ?? 0);
    const branch = [...waiting].sort((one, other) => changed(one) - changed(other))[0]; // what is quick comes first
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
      const found = await ask(address("/api/changed", { ref: branch, since: row.dataset.since }));
      restedAt.set(branch, performance.now() + REST * (performance.now() - begun));
      known.set(branch, found);
      const now = rowOf(branch); // renewed meanwhile, perhaps
      if (now) show(now, found);
    } catch {
      // what the page said at first stays
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
    if (known.has(branch)) show(row, known.get(branch));
    if (touched.has(branch) || (row.dataset.changed !== "0" && !known.has(branch))) waiting.add(branch);
  }
  touched.clear();
  work();
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
  fill();
}

let due = null;
let isMore = false; // than files: who works where, which branches there are
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
  for (const branch of known.keys()) touched.add(branch); // when that was, in words, is another time now
  renew();
}, 60_000);
fill();
