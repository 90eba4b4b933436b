// Commit, merge and take back: asks the server what each would do, shows that, and does it when a person says so.

import { ask, el } from "./dom.js";

const dialog = document.getElementById("act");
const title = document.getElementById("act-title");
const body = document.getElementById("act-body");
const buttons = document.getElementById("act-buttons");

dialog.addEventListener("close", () => buttons.replaceChildren());

const post = (path, form) => ask(path, { method: "POST", body: new URLSearchParams(form) });

// act: { path, title, verb, form }. Calls done(outcome) after it was done, and again() if the page is out of date.
export async function run(act, { done, again }) {
  title.textContent = act.title;
  body.replaceChildren(el("p", { class: "muted" }, "Asking what that would do…"));
  buttons.replaceChildren(cancel());
  if (!dialog.open) dialog.showModal();
  let outcome;
  try {
    outcome = await post(act.path, { ...act.form, dry: "1" });
  } catch (error) {
    return failed(error, again);
  }
  show(outcome);
  const made = [];
  const perform = async () => {
    for (const button of buttons.querySelectorAll("button")) button.disabled = true;
    try {
      const found = await post(act.path, act.form);
      if (found.conflicts?.length) return run(act, { done, again });
      dialog.close();
      done(found);
    } catch (error) {
      failed(error, again);
    }
  };
  if (outcome.conflicts?.length) for (const [field, value, words] of outcome.ways ?? []) made.push(el("button", { type: "button", "data-way": value, onclick: () => run({ ...act, form: { ...act.form, [field]: value } }, { done, again }) }, words));
  else if (!outcome.is_nothing) made.push(el("button", { type: "button", class: act.danger ? "danger" : "primary", id: "perform", onclick: perform }, act.verb));
  buttons.replaceChildren(...made, cancel(outcome.is_nothing || outcome.conflicts?.length ? "Close" : "Leave it as it is"));
  buttons.querySelector("button").focus();
}

// Ask before something is done that needs no look before; the answer is true or false.
export function confirmed({ title: words, said, verb, danger = false }) {
  title.textContent = words;
  body.replaceChildren(...said.map((sentence) => el("p", {}, sentence)));
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(false), { once: true });
    const yes = () => (resolve(true), dialog.close());
    buttons.replaceChildren(el("button", { type: "button", class: danger ? "danger" : "primary", id: "perform", onclick: yes }, verb), cancel());
    if (!dialog.open) dialog.showModal();
    buttons.querySelector("button").focus();
  });
}

function cancel(words = "Leave it as it is") {
  return el("button", { type: "button", onclick: () => dialog.close() }, words);
}

function show(outcome) {
  const made = outcome.said.map((sentence) => el("p", {}, sentence));
  if (outcome.conflicts?.length) {
    made[0].setAttribute("role", "alert");
    const line = (who, text) => (text ? el("div", { class: "mono side-line" }, `${who}: ${text}`) : "");
    const row = (each) => el("li", {}, el("strong", { class: "mono" }, each.path), ` ${each.why}`, line("target", each.ours), line("branch", each.theirs));
    made.push(el("ul", { class: "changes" }, ...outcome.conflicts.map(row), outcome.more ? el("li", { class: "muted" }, `and ${outcome.more.toLocaleString("en")} more`) : ""));
  }
  if (outcome.next) made.push(el("p", {}, outcome.next));
  body.replaceChildren(...made);
}

function failed(error, again) {
  body.replaceChildren(el("p", { role: "alert" }, error.message));
  const load = el("button", { type: "button", class: "primary", id: "load-again", onclick: () => (dialog.close(), again()) }, "Load again");
  buttons.replaceChildren(load, cancel("Close"));
  load.focus();
}
