// Makes elements from text, never from HTML, and sends requests to the server.

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export async function ask(address, options = {}) {
  let response;
  try {
    response = await fetch(address, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("`agentfsd ui` does not answer. Was it ended? Start it again, and open the address that it prints.");
  }
  const said = await response.json().catch(() => ({ error: `\`agentfsd ui\` could not answer (${response.status}).`, hint: "Load the page again." }));
  if (!response.ok || said?.error) throw new Error([said.error, said.hint].filter(Boolean).join(" "));
  return said;
}

// Paths come percent-encoded ("keys"), so that names of any bytes can be sent back unchanged.
export function address(path, parameters) {
  const parts = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined);
  return path + "?" + parts.map(([name, value]) => `${name}=${name === "path" ? value : encodeURIComponent(value)}`).join("&");
}

export function size(bytes) {
  if (bytes < 1024) return bytes === 1 ? "1 byte" : `${bytes} bytes`;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    bytes /= 1024;
    if (bytes < 1024 || unit === "TiB") return `${bytes.toFixed(1)} ${unit}`;
  }
}

export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// How long ago a time is, in the words of the server.
export function ago(ms) {
  let amount = Math.max(0, Math.floor((Date.now() - ms) / 1000));
  if (amount < 10) return "just now";
  for (const [step, noun] of [[60, "second"], [60, "minute"], [24, "hour"], [365, "day"]]) {
    if (amount < step) return `${plural(amount, noun)} ago`;
    amount = Math.floor(amount / step);
  }
  return `${plural(amount, "year")} ago`;
}

// A line of code: parts of [colour, text]; an asterisk marks parts that differ within the line.
export function codeInto(parent, parts) {
  for (const [colour, text] of parts) {
    if (!colour) parent.append(text);
    else parent.append(el("span", { class: colour.endsWith("*") ? `${colour.slice(0, -1)} changed`.trim() : colour }, text));
  }
  return parent;
}

export function mark(status) {
  const words = { A: "added", M: "modified", D: "deleted", R: "renamed", T: "another type", m: "mode or owner", x: "extended attributes" };
  return el("span", { class: `mark ${status}`, title: words[status] }, status);
}

export function refusal(error) {
  return el("div", { class: "empty", role: "alert" }, el("p", {}, error.message));
}

const narrow = matchMedia("(max-width: 760px)");

// True if there is room for only one of the list and the file.
export function isNarrow() {
  return narrow.matches;
}

// Goes from the list to the file. If there is room for only one of them, the browser's Back leads to the list.
export function read(split) {
  if (split.classList.contains("reading")) return;
  split.classList.add("reading");
  if (isNarrow() && !history.state?.reading) history.pushState({ reading: true }, "");
}

export function backButton(split) {
  const back = () => {
    if (history.state?.reading) return history.back();
    split.classList.remove("reading");
    split.querySelector(".rows").focus();
  };
  return el("button", { type: "button", class: "back", onclick: back }, "‹ List");
}

addEventListener("popstate", () => {
  const split = document.querySelector(".split.reading");
  if (!split || !isNarrow()) return;
  split.classList.remove("reading");
  split.querySelector(".rows").focus();
});

// Shows a picture before and after, each { ref, path }, "" if it does not exist; without a ref as the real directory has it. Shows nothing for other files.
export function images(name, before, after) {
  if (!/\.(png|jpe?g|gif|webp|avif|bmp|ico)$/i.test(name)) return [];
  const shown = (place, words) => {
    if (place === "") return "";
    const picture = el("img", { src: address(place.ref ? "/api/image" : "/api/lower-image", place), alt: `${name}, ${words.toLowerCase()}` });
    const caption = el("figcaption", {}, words);
    picture.addEventListener("load", () => caption.append(` · ${picture.naturalWidth} × ${picture.naturalHeight}`));
    picture.addEventListener("error", () => picture.replaceWith(el("p", { class: "muted" }, "This cannot be shown as a picture.")));
    return el("figure", {}, caption, picture);
  };
  return [el("div", { class: "pictures" }, shown(before, "Before"), shown(after, before === "" ? "Picture" : "After"))];
}
