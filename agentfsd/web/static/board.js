// The first page: fills in how many lines each branch changed, and follows what happens.

import { BoardOrder } from "./board_order.js";
import { address, ago, ask, el } from "./dom.js";
import { follow } from "./events.js";

const table = document.querySelector("table.branches tbody");
const state = document.getElementById("state");
const known = new Map(); // by branch: what it changed, to fill in at once when the rows are renewed
const touched = new Set([...table.rows].map((row) => row.dataset.branch)); // branches to ask about, as something may have changed in them
const restedAt = new Map(); // by branch: the earliest time to ask again, as answers take time from the agents
const REST = 20; // the pause before asking again, as a multiple of the time that the answer took
const LEAST_REST = 700;
const order = new BoardOrder(table);
let busy = false;

const shown = (count) => count.toLocaleString("en");

function rowOf(branch) {
  return [...table.rows].find((row) => row.dataset.branch === branch);
}

function fill(row) {
  const found = known.get(row.dataset.branch);
  if (!found) return;
  const lines = [["plus", "+", found.lines_added], ["minus", "\u2212", found.lines_removed]].filter(([, , count]) => count > 0);
  const kinds = [[found.added, "added"], [found.modified, "modified"], [found.deleted, "deleted"]].filter(([count]) => count);
  row.querySelector(".lines").replaceChildren(...lines.map(([kind, sign, count]) => el("span", { class: kind }, sign + shown(count))));
  const what = row.querySelector(".what");
  if (what) what.title = kinds.map(([count, word]) => `${shown(count)} ${word}`).join(", ");
  const when = row.querySelector(".when");
  if (when && found.when) when.textContent = found.when; // the daemon does not remember the last change
}

// Ask about the branches that changed: those that are shown first, and of them the one with the fewest changes, whose answer is the quickest.
async function count() {
  if (busy) return;
  busy = true;
  const isDue = (row) => touched.has(row.dataset.branch) && (restedAt.get(row.dataset.branch) ?? 0) <= performance.now();
  for (;;) {
    const [row] = [...table.rows].filter(isDue).sort((one, other) => one.hidden - other.hidden || one.dataset.size - other.dataset.size);
    if (!row || document.hidden) break;
    const { branch } = row.dataset;
    const begun = performance.now();
    touched.delete(branch);
    try {
      const found = await ask(address("/api/changed", { ref: branch }));
      if (found) known.set(branch, found); // none: it went meanwhile
    } catch {
      // the daemon does not answer: what is shown stays
    }
    restedAt.set(branch, performance.now() + REST * (performance.now() - begun));
    const now = rowOf(branch); // the rows may have been renewed meanwhile
    if (now) fill(now);
  }
  busy = false;
}

async function renew() {
  let response;
  try {
    response = await fetch("/", { credentials: "same-origin" });
  } catch {
    state.textContent = "`agentfsd ui` does not answer.";
    return;
  }
  if (!response.ok) {
    state.textContent = "The daemon does not answer. This goes on by itself once it does.";
    return;
  }
  if (state.textContent !== "Live") state.textContent = "Live";
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const chosen = new Set([...table.querySelectorAll("input:checked")].map((input) => input.value));
  const focused = document.activeElement?.closest?.("tr")?.dataset.branch;
  const place = focused && [...rowOf(focused).querySelectorAll("a, input")].indexOf(document.activeElement);
  table.parentElement.dataset.pulse = page.querySelector("table.branches").dataset.pulse;
  table.replaceChildren(...page.querySelector("table.branches tbody").rows);
  for (const row of table.rows) {
    row.querySelector("input").checked = chosen.has(row.dataset.branch);
    if (!known.has(row.dataset.branch)) touched.add(row.dataset.branch);
    fill(row);
  }
  order.apply();
  if (focused) rowOf(focused)?.querySelectorAll("a, input")[place]?.focus();
  if (table.rows.length > 1) document.getElementById("first")?.remove();
  document.querySelector(".bar").hidden = table.rows.length < 2;
  document.dispatchEvent(new Event("rows-renewed"));
  count();
}

let due = null;
let rest = LEAST_REST;
let isRenewing = false;
let isOld = false; // something happened while the rows were renewed

async function once() {
  due = null;
  isRenewing = true;
  isOld = false;
  const begun = performance.now();
  try {
    await renew();
  } finally {
    rest = Math.max(LEAST_REST, REST * (performance.now() - begun));
    isRenewing = false;
    if (isOld) soon();
  }
}

function soon() {
  if (isRenewing) isOld = true;
  else due ??= setTimeout(once, rest);
}

follow("", {
  begun: soon, // what happened before it listened, also while the daemon was started again
  happened(event) {
    touched.add(event.branch);
    soon();
  },
  gone: (sentence) => (state.textContent = sentence),
});
setInterval(() => {
  if (document.hidden) return;
  for (const each of table.querySelectorAll("time[data-ms]")) each.textContent = ago(Number(each.dataset.ms));
  count();
}, 5_000);

setInterval(async () => {
  if (document.hidden) return;
  const found = await ask("/api/pulse").catch(() => null);
  if (found && found.pulse !== table.parentElement.dataset.pulse) soon();
}, 2_000); // no event says that a process has ended, or a run was recorded
order.apply();
once(); // the page was made without what takes time
