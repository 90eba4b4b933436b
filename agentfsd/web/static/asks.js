// The page of questions: looks for new ones, and for those that were answered elsewhere, without loading the page again.

const EVERY = 3_000;
const section = document.querySelector(".confirm");
const asked = (place) => [...place.querySelectorAll(".ask")].map((each) => each.dataset.id).join(" ");

setInterval(async () => {
  if (document.hidden) return;
  let response;
  try {
    response = await fetch("/asks", { credentials: "same-origin" });
  } catch {
    return; // it is asked again soon
  }
  if (!response.ok) return;
  const found = new DOMParser().parseFromString(await response.text(), "text/html").querySelector(".confirm");
  if (asked(found) !== asked(section)) section.replaceChildren(...found.childNodes);
}, EVERY);
