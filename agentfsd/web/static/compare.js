// What differs between two states: the list of changes, and the chosen one side by side.

import { address, ask, backButton, codeInto, el, mark, plural, refusal } from "./dom.js";
import { List } from "./list.js";

const split = document.getElementById("compare");
const content = document.getElementById("content");
const sum = document.getElementById("sum");
const search = document.getElementById("search");
const { a, b } = split.dataset;
const narrow = matchMedia("(max-width: 760px)");
let all = [];
let found = [];
let counts = {};
let current = null; // { change, diffs, isWhole }

document.getElementById("swap").addEventListener("click", () => {
  location.href = address("/compare", a ? { a: b, b: a } : { a: b, b });
});
if (!a) document.getElementById("swap").disabled = true;

function rowOf(index) {
  const change = found[index];
  const cut = change.path.lastIndexOf("/") + 1;
  const label = el("span", { class: "label", title: (change.was ? `${change.was} → ` : "") + change.path + (change.note ? ` (${change.note})` : "") }, el("span", { class: "name" }, change.path.slice(cut)), cut ? el("span", { class: "dir" }, `  ${change.path.slice(0, cut - 1)}`) : "");
  const [added, removed] = counts[change.key] ?? [];
  const extra = el("span", { class: "extra" }, added > 0 ? el("span", { class: "plus" }, `+${added}`) : "", removed > 0 ? el("span", { class: "minus" }, `\u2212${removed}`) : "");
  return el("div", { class: change.status === "D" ? "gone" : "" }, mark(change.status), label, extra);
}

const list = new List(document.getElementById("list"), { role: "option", draw: rowOf, open: (index) => open(index) });

function filter() {
  const wanted = search.value.toLowerCase();
  found = wanted ? all.filter((change) => `${change.path}\n${change.was ?? ""}`.toLowerCase().includes(wanted)) : all;
  list.chosen = current ? found.indexOf(current.change) : -1;
  list.renew(found.length);
  const total = plural(all.length, "path");
  sum.textContent = all.length === 0 ? "" : wanted ? `${found.length.toLocaleString("en")} of ${total}` : `${total} differ${all.length === 1 ? "s" : ""}`;
}

async function open(index) {
  list.chosen = index;
  list.go(index);
  split.classList.add("reading");
  await show(found[index], false);
}

async function show(change, isWhole) {
  current = { change, diffs: null, isWhole };
  history.replaceState(null, "", address("/compare", { a, b, path: change.key }));
  const late = setTimeout(() => content.replaceChildren(el("p", { class: "empty" }, "Comparing…")), 150);
  try {
    const diffs = await ask(address("/api/diff", { a, b, path: change.key, whole: isWhole ? "1" : "" }));
    if (current.change !== change || current.isWhole !== isWhole) return;
    current.diffs = diffs;
    draw();
  } catch (error) {
    if (current.change === change) content.replaceChildren(head(change, {}), refusal(error));
  } finally {
    clearTimeout(late);
  }
}

function draw() {
  const { change, diffs } = current;
  content.replaceChildren(head(change, diffs[0] ?? {}));
  if (!diffs.length) content.append(el("p", { class: "note" }, change.note ? `It differs in: ${change.note}.` : "A directory; what is in it is listed by itself."));
  for (const diff of diffs) {
    for (const note of diff.notes) content.append(el("p", { class: "note" }, note));
    if (diff.hunks.length) content.append(narrow.matches || "AD".includes(diff.status) ? unified(diff) : sides(diff));
  }
  content.scrollTop = 0;
}

function head(change, diff) {
  const lines = [diff.added ? `+${diff.added}` : "", diff.removed ? `\u2212${diff.removed}` : ""].filter(Boolean).join(" ");
  const path = { path: change.key };
  const restore = split.dataset.restorable === undefined ? "" : el("a", { href: address("/restore", { ref: a, branch: b, ...path }) }, "Restore this file…");
  const whole = "AD".includes(change.status) ? "" : el("button", { type: "button", onclick: () => show(change, !current.isWhole) }, current?.isWhole ? "Only what changed" : "Whole file");
  return el("div", { class: "file-head" }, backButton(split), mark(change.status), el("h2", { class: "mono" }, (change.was ? `${change.was} → ` : "") + change.path), el("span", { class: "facts-line" }, lines), el("span", { class: "spacer" }), change.status === "D" ? "" : el("a", { href: address("/files", { ref: b, against: a, ...path }) }, "File"), restore, whole);
}

function number(value, kind, two = "") {
  return el("td", { class: `num ${kind} ${two}` }, value ? String(value) : "");
}

function text(parts, kind) {
  return parts ? codeInto(el("td", { class: `text ${kind}` }), parts) : el("td", { class: "text none" });
}

function hunkHead(hunk, first, columns) {
  return first && !hunk.head ? "" : el("tr", { class: "hunk" }, el("td", { colspan: columns }, hunk.head ? `⋯ ${hunk.head}` : "⋯"));
}

// The columns with numbers are narrow, those with text share the rest.
function columns(kinds) {
  return el("colgroup", {}, ...[...kinds].map((kind) => el("col", { class: kind })));
}

function sides(diff) {
  const body = el("tbody");
  diff.hunks.forEach((hunk, index) => {
    body.append(hunkHead(hunk, index === 0, 4));
    for (const row of hunk.rows) {
      const was = row.same || !row.was ? "" : "was";
      const now = row.same || !row.now ? "" : "now";
      body.append(el("tr", {}, number(row.old, row.was ? was : "none"), text(row.was, was), number(row.new, row.now ? now : "none"), text(row.now, now)));
    }
  });
  return el("table", { class: "diff" }, columns("ntnt"), el("thead", { class: "hidden" }, el("tr", {}, el("th", {}, "Line"), el("th", {}, "Before"), el("th", {}, "Line"), el("th", {}, "After"))), body);
}

function unified(diff) {
  const body = el("tbody");
  const line = (row, side, kind) => el("tr", {}, number(side === "now" && kind ? 0 : row.old, kind, "two"), number(side === "was" && kind ? 0 : row.new, kind, "two"), text(row[side], kind));
  const flush = (rows) => {
    for (const row of rows) if (row.was) body.append(line(row, "was", "was"));
    for (const row of rows) if (row.now) body.append(line(row, "now", "now"));
    rows.length = 0;
  };
  diff.hunks.forEach((hunk, index) => {
    body.append(hunkHead(hunk, index === 0, 3));
    const changed = [];
    for (const row of hunk.rows) {
      if (row.same) {
        flush(changed);
        body.append(line(row, "now", ""));
      } else {
        changed.push(row);
      }
    }
    flush(changed);
  });
  return el("table", { class: "diff unified" }, columns("nnt"), body);
}

function nothing() {
  const name = (select) => select.selectedOptions[0]?.textContent ?? "";
  const [from, to] = document.querySelectorAll("#choose select");
  content.replaceChildren(el("div", { class: "empty" }, el("h2", {}, "No differences"), el("p", {}, `${name(to)} is like ${name(from)}. Choose another state above, or another branch on the first page.`), el("a", { class: "button", href: "/" }, "Branches")));
  split.classList.add("reading");
}

search.addEventListener("input", filter);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && found.length) open(0).then(() => list.box.focus());
});
narrow.addEventListener("change", () => current?.diffs && draw());
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { n: 1, p: -1 }[event.key];
  const to = list.chosen + step;
  if (step && to >= 0 && to < found.length) open(to);
});

async function start() {
  try {
    const said = await ask(address("/api/changes", { a, b }));
    all = said.changes;
    filter();
    if (!all.length) return nothing();
    const wanted = new RegExp("[?&]path=([^&]*)").exec(location.search)?.[1];
    const index = all.findIndex((change) => change.key === wanted);
    if (index >= 0) open(index);
    else if (!narrow.matches) {
      const first = all.findIndex((change) => change.status === "M");
      open(Math.max(0, first));
    }
    list.box.focus({ preventScroll: true });
    if (said.counted) {
      counts = await ask(address("/api/counts", { a, b }));
      list.renew(found.length);
    }
  } catch (error) {
    sum.textContent = "";
    content.replaceChildren(refusal(error));
    split.classList.add("reading");
  }
}

start();
