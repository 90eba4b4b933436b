// The page of the files of one state: a tree, which loads a directory when it is opened, and the chosen file.

import { address, ask, backButton, codeInto, el, images, mark, plural, read, refusal, size } from "./dom.js";
import { List } from "./list.js";

const LINES_AT_ONCE = 400;
const split = document.getElementById("files");
const content = document.getElementById("content");
const sum = document.getElementById("sum");
const search = document.getElementById("search");
const { ref, against } = split.dataset;
const marks = new Map(); // by key: status
const inside = new Set(); // keys of directories with changes below
const gone = new Map(); // by key of a directory: its deleted files
let rows = []; // the visible rows of the tree: { key, name, kind, bytes, depth, isOpen, isGone }
let tree = null; // the rows of the tree while search results are shown
let current = "";

const parent = (key) => key.slice(0, Math.max(0, key.lastIndexOf("/")));
const isDirectory = (row) => row.kind === "d";

function rowOf(index) {
  const row = rows[index];
  const status = marks.get(row.key);
  const twist = el("span", { class: "twist", "aria-hidden": "true" }, isDirectory(row) && !tree ? (row.isOpen ? "▾" : "▸") : "");
  const label = el("span", { class: "label", title: row.name }, el("span", { class: "name" }, row.name + (row.kind[0] === "d" ? "/" : "")), row.kind.endsWith("l") ? el("span", { class: "dir" }, " → symlink") : "");
  const sign = status ? mark(status) : inside.has(row.key) ? el("span", { class: "mark inside", title: "something in it differs" }, "•") : "";
  const made = el("div", { class: row.isGone ? "gone" : "", "aria-level": row.depth + 1, "aria-expanded": isDirectory(row) ? String(Boolean(row.isOpen)) : undefined }, twist, label, el("span", { class: "extra" }, row.kind === "f" && !row.isGone && row.bytes >= 0 ? size(row.bytes) : ""), sign);
  made.style.paddingLeft = `${8 + 14 * row.depth}px`;
  return made;
}

const list = new List(document.getElementById("list"), { role: "treeitem", draw: rowOf, open: take, key: arrow });

async function children(key, depth) {
  const said = await ask(`/api/filesystem/tree?ref=${encodeURIComponent(ref)}&path=${key}`);
  const made = said.entries.map(([part, shown, kind, bytes]) => ({ key: key ? `${key}/${part}` : part, name: shown || part, kind, bytes, depth }));
  if (gone.has(key)) {
    for (const row of gone.get(key)) made.push({ ...row, depth, isGone: true });
    made.sort((one, other) => (one.key < other.key ? -1 : 1));
  }
  const directories = made.filter(isDirectory);
  return directories.length ? [...directories, ...made.filter((row) => !isDirectory(row))] : made;
}

function end(index) {
  let at = index + 1;
  while (at < rows.length && rows[at].depth > rows[index].depth) at++;
  return at;
}

async function expand(index) {
  const row = rows[index];
  if (row.isOpen || row.isGone) return;
  const late = setTimeout(() => (sum.textContent = `Reading ${row.name}/…`), 150);
  try {
    const found = await children(row.key, row.depth + 1);
    const at = rows.indexOf(row);
    if (at < 0 || row.isOpen) return;
    row.isOpen = true;
    rows = rows.slice(0, at + 1).concat(found, rows.slice(at + 1));
    sum.textContent = found.length ? `${row.name}/ holds ${plural(found.length, "name")}` : `${row.name}/ is empty`;
  } catch (error) {
    sum.textContent = error.message;
  } finally {
    clearTimeout(late);
  }
  renew();
}

function collapse(index) {
  rows[index].isOpen = false;
  rows = rows.slice(0, index + 1).concat(rows.slice(end(index)));
  renew();
}

function renew() {
  list.chosen = rows.findIndex((row) => row.key === current && !isDirectory(row));
  list.renew(rows.length);
}

function take(index) {
  const row = rows[index];
  if (isDirectory(row) && !row.isGone) return row.isOpen ? collapse(index) : expand(index);
  list.chosen = index;
  list.point();
  if (row.isGone) return showGone(row);
  return show(row.key, 0);
}

function arrow(event, index) {
  const row = rows[index];
  if (event.key === "ArrowRight" && isDirectory(row)) row.isOpen ? list.go(index + 1) : expand(index);
  else if (event.key === "ArrowLeft" && row.isOpen) collapse(index);
  else if (event.key === "ArrowLeft") {
    const above = rows.findIndex((each) => each.key === parent(row.key));
    if (above >= 0) list.go(above);
  } else return false;
  return true;
}

function showGone(row) {
  const link = el("a", { class: "button", href: address("/compare", { a: against, b: ref, path: row.key }) }, "What was in it");
  content.replaceChildren(el("div", { class: "file-head" }, backButton(split), mark("D"), el("h2", { class: "mono" }, row.name)), el("div", { class: "empty" }, el("p", {}, "This was deleted here."), link));
  read(split);
}

async function show(key, offset, focus = false) {
  current = key;
  read(split);
  const parameters = { ref, against, path: key };
  if (!offset) history.replaceState(history.state, "", address("/files", parameters));
  const more = offset ? content.querySelector(".more button") : null;
  const reading = () => (more ? (more.textContent = "Reading…") : content.replaceChildren(el("p", { class: "empty" }, "Reading…")));
  if (more) more.disabled = true; // the lines loaded so far stay
  const late = setTimeout(reading, 150);
  try {
    const view = await ask(address("/api/view", { ref, path: key, offset: offset || undefined }));
    clearTimeout(late);
    if (current !== key) return;
    if (!offset) content.replaceChildren(head(view, key));
    body(view, key, offset);
    if (focus) content.focus();
  } catch (error) {
    clearTimeout(late);
    if (current === key) content.replaceChildren(el("div", { class: "file-head" }, backButton(split)), refusal(error));
  }
}

function head(view, key) {
  const status = marks.get(key);
  const facts = [size(view.size_bytes), view.mode ? `mode ${view.mode}` : "", view.mtime_ns ? new Date(view.mtime_ns / 1e6).toLocaleString("sv") : ""].filter(Boolean).join(" · ");
  const raw = (more) => address("/api/filesystem/file", { ref, path: key, ...more });
  return el("div", { class: "file-head" }, backButton(split), status ? mark(status) : "", el("h2", { class: "mono" }, view.name), el("span", { class: "facts-line" }, facts), el("span", { class: "spacer" }), status ? el("a", { href: address("/compare", { a: against, b: ref, path: key }) }, "What changed") : "", view.lines ? el("a", { href: raw({}) }, "Plain text") : "", view.lines || view.hex ? el("a", { href: raw({ download: "1" }) }, "Download") : "");
}

function body(view, key, offset) {
  content.querySelector(".more")?.remove();
  for (const note of view.notes ?? []) if (!offset) content.append(el("p", { class: "note" }, note));
  if (view.lines) lines(view.lines, offset ? content.querySelectorAll(".line").length : 0);
  if (view.lines && !view.lines.length && !offset) content.append(el("p", { class: "empty" }, "The file is empty."));
  if (view.hex && !offset) content.append(...images(view.name, "", { ref, path: key }));
  if (view.hex) content.append(hex(view.hex));
  if (view.next) {
    const more = el("button", { type: "button", onclick: () => show(key, view.next) }, `Show more (${size(view.next)} of ${size(view.size_bytes)} shown)`);
    content.append(el("p", { class: "empty more" }, more));
  }
}

function lines(found, before) {
  const code = el("div", { class: "code" });
  for (let start = 0; start < found.length; start += LINES_AT_ONCE) {
    const part = found.slice(start, start + LINES_AT_ONCE);
    const block = el("div", { class: "block" });
    block.style.containIntrinsicHeight = `auto ${part.length * 20}px`;
    part.forEach((line, index) => {
      block.append(el("div", { class: "line" }, el("span", { class: "num" }, String(before + start + index + 1)), codeInto(el("span"), line)));
    });
    code.append(block);
  }
  content.append(code);
}

function hex(found) {
  const box = el("div", { class: "hexes" });
  for (const [at, bytes, characters] of found) box.append(el("span", { class: "num" }, at), `  ${bytes.padEnd(47)}  ${characters}\n`);
  return box;
}

search.addEventListener("keydown", async (event) => {
  if (event.key !== "Enter") return;
  const wanted = search.value.trim();
  if (!wanted) return leaveSearch();
  sum.textContent = "Searching…";
  try {
    const said = await ask(address("/api/find", { ref, q: wanted }));
    tree ??= rows;
    rows = said.found.map(([key, shown]) => ({ key, name: shown, kind: "f", depth: 0 }));
    sum.textContent = said.more ? `The first ${said.found.length} that match` : said.found.length ? `${plural(rows.length, "file")} found; empty the search for the tree` : "No path holds that. Esc, and the tree is back.";
    list.active = 0;
    renew();
    if (rows.length) list.box.focus();
  } catch (error) {
    sum.textContent = error.message;
  }
});
search.addEventListener("input", () => search.value === "" && leaveSearch());
search.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    search.value = "";
    leaveSearch();
  }
});

function leaveSearch() {
  if (!tree) return;
  rows = tree;
  tree = null;
  sum.textContent = "";
  renew();
}

async function loadMarks() {
  if (split.dataset.live === undefined) return;
  const { changes } = await ask(address("/api/changes", { a: against, b: ref }));
  for (const change of changes) {
    marks.set(change.key, change.status);
    for (let above = parent(change.key); above; above = parent(above)) inside.add(above);
    const was = change.status === "D" ? change.key : change.was_key;
    if (!was) continue;
    const name = (change.status === "D" ? change.path : change.was).split("/").pop();
    const directory = parent(was);
    if (!gone.has(directory)) gone.set(directory, []);
    gone.get(directory).push({ key: was, name, kind: "f" });
    marks.set(was, "D");
    for (let above = directory; above; above = parent(above)) inside.add(above);
  }
}

// Inserts deleted files into the rows that are shown.
function putMarks() {
  const chosen = rows[list.active]?.key;
  const shown = tree ?? rows; // search results may be shown
  const put = (directory, begin, depth) => {
    for (const row of gone.get(directory) ?? []) {
      let at = begin;
      while (at < shown.length && shown[at].depth >= depth && (shown[at].depth > depth || isDirectory(shown[at]) || shown[at].key < row.key)) at++;
      if (shown[at]?.key !== row.key && !shown.slice(begin, at).some((each) => each.key === row.key)) shown.splice(at, 0, { ...row, depth, isGone: true });
    }
  };
  put("", 0, 0);
  for (let at = 0; at < shown.length; at++) if (shown[at].isOpen) put(shown[at].key, at + 1, shown[at].depth + 1);
  const at = rows.findIndex((row) => row.key === chosen);
  if (at >= 0) list.active = at;
  renew();
  const status = marks.get(current);
  const name = content.querySelector(".file-head h2");
  if (current && status && name && !content.querySelector(".file-head .mark")) {
    name.before(mark(status));
    content.querySelector(".file-head .spacer").after(el("a", { href: address("/compare", { a: against, b: ref, path: current }) }, "What changed"));
  }
}

async function reveal(key) {
  for (let cut = key.indexOf("/"); cut > 0; cut = key.indexOf("/", cut + 1)) {
    const index = rows.findIndex((row) => row.key === key.slice(0, cut));
    if (index < 0) return;
    await expand(index);
  }
  const index = rows.findIndex((row) => row.key === key);
  if (index < 0) return;
  list.go(index);
  if (isDirectory(rows[index])) await expand(index);
}

async function start() {
  const wanted = split.dataset.path;
  try {
    rows = await children("", 0);
    renew();
    sum.textContent = rows.length ? "" : "There is nothing in it yet.";
    list.box.focus({ preventScroll: true });
    if (wanted) {
      await reveal(wanted);
      const row = rows[list.active];
      if (!row || row.key !== wanted || !isDirectory(row)) await show(wanted, 0);
      renew();
    }
    await loadMarks(); // last, as it takes seconds with many changes
    putMarks();
  } catch (error) {
    content.replaceChildren(refusal(error));
    read(split);
  }
}

start();
