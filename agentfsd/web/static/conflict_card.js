// One path with a conflict: its versions side by side, what is chosen in each place, and how it is decided.

import { address, codeInto, el, images } from "./dom.js";

const DECIDED = { ours: "decided: ours", theirs: "decided: theirs", edited: "decided: edited", marked: "decided: as it is" };
const KEYS = { o: "ours", t: "theirs", b: "both", e: "text" };
const AHEAD = "800px"; // how near to the window a card is read
const cardOf = new WeakMap(); // by its box
const near = new IntersectionObserver((entries) => entries.forEach((entry) => cardOf.get(entry.target).comesNear(entry.isIntersecting)), { rootMargin: `${AHEAD} 0px` });

export class ConflictCard {
  constructor(conflict, page, merge) {
    Object.assign(this, { conflict, page, shown: null, choices: [], whole: null, isOpen: !conflict.decided, isNear: false });
    this.place = `draft ${page.branch} ${merge} ${conflict.key}`;
    this.fold = el("button", { type: "button", class: "quiet fold", onclick: () => this.turn() });
    this.status = el("span", { class: "tag" });
    this.body = el("div", { class: "conflict-body" });
    this.box = el("article", { class: "conflict", "aria-label": conflict.path }, el("header", { class: "conflict-top" }, this.fold, el("h3", { class: "mono" }, conflict.path), el("small", { class: "muted" }, conflict.message), el("span", { class: "spacer" }), this.status), this.body);
    this.box.addEventListener("keydown", (event) => this.pressed(event));
    cardOf.set(this.box, this);
    near.observe(this.box);
    this.renew(conflict);
  }

  // A merge may leave a thousand conflicts: each is read when a person comes near.
  comesNear(isNear) {
    this.isNear = isNear;
    this.drawFold();
  }

  get names() {
    return { base: "Common state", ours: `${this.page.name} (ours)`, theirs: `${this.conflict.source || "the merged branch"} (theirs)` };
  }

  // Take over what the server says of the conflict now.
  renew(conflict) {
    const wasDecided = this.conflict.decided;
    this.conflict = conflict;
    if (conflict.decided && conflict.decided !== wasDecided) {
      this.isOpen = false;
      this.forget();
    } else if (wasDecided && !conflict.decided) this.isOpen = true; // it was undone
    if (conflict.decided !== wasDecided) this.shown = null;
    this.status.textContent = DECIDED[conflict.decided] ?? "undecided";
    this.status.className = conflict.decided ? "tag settled" : "tag open";
    this.drawFold();
  }

  drawFold() {
    this.body.hidden = !this.isOpen;
    this.fold.textContent = this.isOpen ? "▾" : "▸";
    this.fold.setAttribute("aria-expanded", this.isOpen);
    this.fold.setAttribute("aria-label", `Show ${this.conflict.path}`);
    if (!this.body.childElementCount) this.body.append(el("p", { class: "muted conflict-note" }, "Reading…"));
    if (this.isOpen && this.isNear && !this.shown) this.load();
  }

  turn() {
    this.isOpen = !this.isOpen;
    this.drawFold();
  }

  // The path was changed in the branch: what is shown may be out of date.
  moved() {
    if (!this.shown || this.isBusy) return;
    if (this.isTouched()) this.sayMoved();
    else this.load();
  }

  sayMoved() {
    this.say("It has changed in the branch since it was shown here. What you chose and wrote is kept until you load it again.", true);
  }

  isTouched() {
    return this.whole !== null || this.choices.some(Boolean);
  }

  async load() {
    if (this.conflict.kind === "under-way") return this.body.replaceChildren(el("p", { class: "note" }, this.conflict.message));
    this.isOld = true;
    if (this.isLoading) return; // it asks again when the answer has come
    this.isLoading = true;
    try {
      let found;
      while (this.isOld) {
        this.isOld = false;
        found = await this.page.ask("/api/conflicts/path", { path: this.conflict.key });
      }
      this.take(found);
    } catch (error) {
      this.body.replaceChildren(el("p", { class: "note", role: "alert" }, error.message));
    }
    this.isLoading = false;
  }

  // Show what was read, unless somebody has begun meanwhile to choose in what was shown before.
  take(found) {
    if (this.shown && this.isTouched() && found.version !== this.shown.version) return this.sayMoved();
    this.shown = found;
    this.recall();
    this.draw();
  }

  // -- what was chosen and not decided yet: kept while this tab is open, for the version that was seen

  recall() {
    const kept = JSON.parse(sessionStorage.getItem(this.place) ?? "null");
    const isSame = kept?.version === this.shown.version;
    this.choices = isSame ? kept.choices : this.shown.clashes?.map(() => null) ?? [];
    this.whole = isSame ? kept.whole : null;
  }

  keep() {
    try {
      sessionStorage.setItem(this.place, JSON.stringify({ version: this.shown.version, choices: this.choices, whole: this.whole }));
    } catch {
      // too much for the browser: it is kept as long as the page is open
    }
    this.drawButtons();
  }

  forget() {
    sessionStorage.removeItem(this.place);
    Object.assign(this, { choices: [], whole: null });
  }

  // -- drawing

  draw() {
    const { shown } = this;
    this.notes = el("div", { class: "conflict-notes" }, ...(shown.notes ?? []).map((note) => el("p", { class: "note" }, note)));
    this.buttons = el("div", { class: "conflict-buttons" });
    const parts = this.whole !== null ? [this.editor()] : shown.clashes?.length ? shown.clashes.map((clash, index) => this.clash(clash, index)) : [this.versions()];
    this.body.replaceChildren(this.notes, ...parts, this.buttons);
    this.drawButtons();
  }

  clash(clash, index) {
    const radio = (value, words) => {
      const input = el("input", { type: "radio", name: `${this.conflict.key} ${index}`, value, disabled: !this.page.isWritable, onchange: () => this.choose(index, value) });
      input.checked = this.choices[index]?.[0] === value;
      return el("label", { class: "tick-label" }, input, ` ${words}`);
    };
    const around = (lines) => (lines.length ? el("div", { class: "around" }, ...lines.map((line) => lineOf(line))) : "");
    const column = (side) => el("div", { class: `column ${side}`, role: "group", "aria-label": this.names[side] }, el("header", {}, el("strong", {}, this.names[side]), side !== "base" && this.page.isWritable ? radio(side, side === "ours" ? "Take ours" : "Take theirs") : ""), el("div", { class: "lines" }, ...(clash[side] === null ? [el("p", { class: "muted" }, "not known")] : clash[side].length ? clash[side].map((line) => lineOf(line)) : [el("p", { class: "muted" }, "no lines")])));
    const more = this.page.isWritable ? el("div", { class: "more" }, radio("both", "Take both, ours first"), clash.text === null ? "" : radio("text", "Edit")) : "";
    const made = el("fieldset", { class: "clash", "data-n": index }, el("legend", {}, `Line ${clash.line}`), around(clash.before), el("div", { class: "columns" }, column("base"), column("ours"), column("theirs")), around(clash.after), more);
    if (this.choices[index]?.[0] === "text") made.append(this.textOf(index));
    return made;
  }

  textOf(index) {
    const area = el("textarea", { class: "mono", "aria-label": `The lines instead, at line ${this.shown.clashes[index].line}`, rows: Math.min(20, this.choices[index][1].split("\n").length + 1), spellcheck: "false", oninput: (event) => ((this.choices[index] = ["text", event.target.value]), this.keep()) });
    area.value = this.choices[index][1];
    return area;
  }

  versions() {
    const { versions } = this.shown;
    const isPicture = ["base", "ours", "theirs"].some((side) => images(this.conflict.path, "", "").length && versions[side]?.is_file);
    const column = (side) => {
      const version = versions[side];
      const picture = isPicture && version.is_file ? el("img", { src: address("/api/conflicts/image", { branch: this.page.branch, side, path: this.conflict.key }), alt: `${this.conflict.path}, ${this.names[side]}` }) : "";
      if (picture) picture.addEventListener("error", () => picture.replaceWith(el("p", { class: "muted" }, "This cannot be shown as a picture.")));
      return el("div", { class: `column ${side}`, role: "group", "aria-label": this.names[side] }, el("header", {}, el("strong", {}, this.names[side])), el("p", { class: "muted what" }, version.what), picture, version.lines && !isPicture ? el("div", { class: "lines", tabindex: "0" }, ...version.lines.map((line) => lineOf(line))) : "");
    };
    return el("div", { class: "columns" }, column("base"), column("ours"), column("theirs"));
  }

  editor() {
    const area = el("textarea", { class: "mono whole", "aria-label": `All of ${this.conflict.path}`, rows: Math.min(30, this.whole.split("\n").length + 1), spellcheck: "false", oninput: (event) => ((this.whole = event.target.value), this.keep()) });
    area.value = this.whole;
    return area;
  }

  drawButtons() {
    if (!this.page.isWritable) return;
    const button = (words, onclick, more = {}) => el("button", { type: "button", onclick, ...more }, words);
    const made = [];
    const count = this.choices.filter(Boolean).length;
    if (this.whole !== null) {
      made.push(button("Decide with this text", () => this.decide({ text: this.whole }), { class: "primary decide" }));
      made.push(button("Back to the sides", () => ((this.whole = null), this.keep(), this.draw())));
    } else {
      if (this.shown.clashes?.length) made.push(button(count < this.choices.length ? `Decide (${count} of ${this.choices.length} chosen)` : "Decide", () => this.decide({ choices: JSON.stringify(this.choices) }), { class: "primary decide", disabled: count < this.choices.length }));
      made.push(button("Take all of ours", () => this.decide({ how: "ours" }), { "data-how": "ours" }), button("Take all of theirs", () => this.decide({ how: "theirs" }), { "data-how": "theirs" }));
      if (typeof this.shown.text === "string") made.push(button("Edit the whole file", () => ((this.whole = this.shown.text), this.keep(), this.draw())));
      made.push(button("It is right as it is", () => this.decide({ how: "marked" }), { "data-how": "marked" }));
    }
    this.buttons.replaceChildren(...made);
  }

  say(sentence, canLoad = false) {
    const load = el("button", { type: "button", onclick: () => (this.forget(), this.load()) }, "Load again");
    this.notes.replaceChildren(el("p", { class: "note warn", role: "alert" }, sentence, canLoad ? " " : "", canLoad ? load : ""));
  }

  // -- choosing and deciding

  choose(index, take) {
    const clash = this.shown.clashes[index];
    this.choices[index] = take === "text" ? ["text", this.choices[index]?.[1] || clash.text] : [take, this.choices[index]?.[1] ?? ""];
    this.keep();
    const box = this.body.querySelector(`.clash[data-n="${index}"]`);
    box.querySelector("textarea")?.remove();
    if (take !== "text") return;
    box.append(this.textOf(index));
    box.querySelector("textarea").focus();
  }

  async decide(more) {
    this.isBusy = true;
    for (const button of this.buttons.children) button.disabled = true;
    try {
      await this.page.decide({ path: this.conflict.key, version: this.shown.version, ...more });
    } catch (error) {
      this.say(error.message, true);
      this.drawButtons();
    }
    this.isBusy = false;
  }

  pressed(event) {
    if (event.target.matches("textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const clash = event.target.closest(".clash");
    const input = clash && KEYS[event.key] ? clash.querySelector(`input[value="${KEYS[event.key]}"]`) : null;
    if (input && !input.disabled) {
      input.focus();
      input.click();
    } else if (event.key === "m") this.body.querySelector(".decide:not(:disabled)")?.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function lineOf(parts) {
  return codeInto(el("div", { class: "code-line" }), parts.length ? parts : [["", "\u200b"]]);
}
