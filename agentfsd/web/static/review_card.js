// Draws one changed file of a review: its heading, and its hunks with a box each to choose them.

import { drawn } from "./difference.js";
import { address, el, images, isNarrow, mark, plural } from "./dom.js";

const WHY = { generated: "A generated file", minified: "A minified file", large: "A long difference" }; // why lines are left out

export function amounts(added, removed) {
  const shown = (count) => count.toLocaleString("en");
  return [added > 0 ? el("span", { class: "plus" }, `+${shown(added)}`) : "", removed > 0 ? el("span", { class: "minus" }, `\u2212${shown(removed)}`) : ""];
}

// file: { change, data, chosen, isViewed, isOpen, card }; page: { branch, since, writable, unified, on... }.
export function card(file, index, page) {
  const { change } = file;
  const name = (change.was ? `${change.was} → ` : "") + change.path;
  const fold = el("button", { type: "button", class: "quiet fold", "aria-expanded": "true", "aria-label": `Fold ${change.path}`, onclick: () => page.fold(file) }, "▾");
  const all = page.writable ? el("input", { type: "checkbox", class: "all", "aria-label": `Choose all of ${change.path}`, onchange: (event) => page.chooseFile(file, event.target.checked) }) : "";
  const viewed = el("label", { class: "tick-label viewed" }, el("input", { type: "checkbox", onchange: (event) => page.view(file, event.target.checked) }), " Viewed");
  const link = change.status === "D" ? "" : el("a", { href: address("/files", { ref: page.name, against: page.since, path: change.key }) }, "File");
  const top = el("header", { class: "card-top" }, fold, all, mark(change.status), el("h2", { class: "mono" }, name), el("span", { class: "counts" }), change.executed ? el("span", { class: "tag runs", title: change.executed }, "runs on your side") : "", el("span", { class: "spacer" }), link, viewed);
  const made = el("section", { class: "file-card", id: `file-${index}`, "aria-label": change.path }, top, el("div", { class: "card-body" }));
  made.dataset.index = index;
  made.dataset.key = change.key;
  return made;
}

export function showCounts(file, added, removed) {
  file.card.querySelector(".counts").replaceChildren(...amounts(added, removed));
}

// Mark what is chosen, viewed and folded, without drawing the lines again.
export function showState(file) {
  const { card: made, data, chosen } = file;
  const isFolded = file.isFolded;
  made.classList.toggle("folded", isFolded);
  made.querySelector(".fold").textContent = isFolded ? "▸" : "▾";
  made.querySelector(".fold").setAttribute("aria-expanded", !isFolded);
  made.querySelector(".viewed input").checked = file.isViewed;
  const all = made.querySelector(".all");
  if (all) {
    const count = data?.hunks?.length ?? 0;
    all.checked = count > 0 && chosen.size === count;
    all.indeterminate = chosen.size > 0 && chosen.size < count;
    all.disabled = data !== null && (data.choosable === false || !count);
  }
  for (const hunk of made.querySelectorAll(".hunk")) {
    const box = hunk.querySelector("input");
    if (box) box.checked = chosen.has(Number(hunk.dataset.n));
    hunk.classList.toggle("picked", chosen.has(Number(hunk.dataset.n)));
  }
}

export function drawBody(file, page) {
  const { change, data } = file;
  const body = file.card.querySelector(".card-body");
  body.style.minHeight = "";
  showCounts(file, data.added ?? 0, data.removed ?? 0);
  const made = [];
  if (file.isChanged) made.push(el("p", { class: "note warn" }, "It has changed since you viewed it."));
  if (change.executed) made.push(el("p", { class: "note" }, `This file runs on your side: ${change.executed}.`));
  for (const note of data.notes ?? []) made.push(el("p", { class: "note" }, note));
  const hunks = (data.hunks ?? []).map((hunk, n) => ({ rows: [], ...hunk, n }));
  const lines = hunks.filter((hunk) => hunk.rows.length).map((hunk) => ({ ...hunk, head: hunk.head || `Line ${lineOf(hunk)}` }));
  for (const hunk of hunks.filter((each) => !each.rows.length)) made.push(el("div", { class: "hunk alone", "data-n": hunk.n }, box(file, hunk, page), el("span", {}, hunk.head || "Some lines")));
  if (data.folded && data.lines && !lines.length) made.push(el("p", { class: "folded-note" }, `${WHY[data.folded]}: ${plural(data.lines, "changed line")}. `, el("button", { type: "button", onclick: () => page.open(file) }, "Show")));
  const layout = { unified: page.unified() || isNarrow() || "AD".includes(change.status), blanks: false };
  const whole = () => page.whole(file);
  made.push(...drawn({ status: change.status, hunks: lines }, layout, whole, (index) => box(file, lines[index], page)));
  const before = change.status === "A" ? "" : { ref: page.since, path: change.was_key || change.key };
  made.push(...images(change.path, before, change.status === "D" ? "" : { ref: page.name, path: change.key }));
  body.replaceChildren(...made);
  for (const row of body.querySelectorAll("tr.hunk")) {
    const input = row.querySelector("[data-of]");
    if (input) row.dataset.n = input.dataset.of;
    else row.classList.replace("hunk", "rest");
  }
  showState(file);
}

// The first line of a hunk that differs, in the new version if that has it.
function lineOf(hunk) {
  const row = hunk.rows.find((each) => !each.same);
  return row?.new || row?.old || 1;
}

function box(file, hunk, page) {
  const words = hunk.rows.length ? `Choose the hunk at line ${lineOf(hunk)}` : `Choose: ${hunk.head}`;
  if (!page.writable || file.data.choosable === false) return el("span", { "data-of": hunk.n });
  return el("input", { type: "checkbox", class: "pick", "data-of": hunk.n, "aria-label": `${words} of ${file.change.path}`, onchange: (event) => page.choose(file, hunk.n, event.target.checked) });
}
