// What every page has: parts that are fetched anew, times and numbers as their reader writes them, live news.
import htmx from "htmx.org";

window.htmx = htmx;
htmx.config.includeIndicatorStyles = false;
htmx.config.allowEval = false;
htmx.config.selfRequestsOnly = true;
htmx.config.historyCacheSize = 0;

const csrf = document.querySelector('meta[name="csrf"]')?.content;
document.addEventListener("htmx:configRequest", (event) => {
  if (csrf) event.detail.headers["X-CSRF-Token"] = csrf;
});
// A part that is refused says why; it is shown like any other.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status >= 400) event.detail.shouldSwap = event.detail.xhr.getResponseHeader("X-Part") === "yes";
});

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const ago = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const number = new Intl.NumberFormat();
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

function localise(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    element.title = moment.format(at);
    if (!element.hasAttribute("data-ago")) {
      element.textContent = moment.format(at);
      continue;
    }
    const seconds = (at - Date.now()) / 1000;
    const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? UNITS.at(-1);
    element.textContent = ago.format(Math.round(seconds / size), unit);
  }
  for (const element of root.querySelectorAll("data[value]")) {
    const value = Number(element.value);
    if (Number.isFinite(value)) element.textContent = number.format(value);
  }
}

localise(document);
document.addEventListener("htmx:load", (event) => localise(event.detail.elt));
setInterval(() => localise(document), 30_000);

// On a narrow window the rooms are one line, of which the present one is to be seen.
const present = document.querySelector(".top nav a[aria-current]");
if (present) present.parentElement.scrollLeft = present.offsetLeft - (present.parentElement.clientWidth - present.offsetWidth) / 2;

// Copy a token or a URI.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim());
  button.textContent = "Copied";
});

// What just happened: the server rings, the part is fetched.
const live = document.querySelector("[data-live]");
if (live && "EventSource" in window) {
  const source = new EventSource(live.dataset.live);
  let waiting = false;
  source.addEventListener("news", () => {
    if (waiting) return;
    waiting = true; // a hundred changes a second are one look
    setTimeout(() => {
      waiting = false;
      htmx.trigger(document.body, "news");
    }, 500);
  });
  window.addEventListener("pagehide", () => source.close());
}

// Files that are dropped are files that are chosen.
for (const zone of document.querySelectorAll("[data-drop]")) {
  const input = document.getElementById(zone.dataset.drop);
  const mark = (on) => zone.classList.toggle("over", on);
  for (const name of ["dragenter", "dragover"]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      mark(true);
    });
  }
  zone.addEventListener("dragleave", () => mark(false));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    mark(false);
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

// Many files: one after the other, each with how it went.
const many = document.querySelector("form[data-many]");
if (many) {
  const input = many.querySelector('input[type="file"]');
  const list = document.getElementById(many.dataset.many);
  const bar = list.querySelector("progress");
  many.addEventListener("submit", async (event) => {
    if (input.files.length < 2) return; // one file goes the way that works without all this
    event.preventDefault();
    const files = [...input.files];
    const rows = list.querySelector("tbody");
    const buttons = [...many.querySelectorAll("button")];
    const act = event.submitter?.value ?? "check";
    list.hidden = false;
    for (const button of buttons) button.disabled = true;
    rows.replaceChildren();
    bar.max = files.length;
    bar.value = 0;
    for (const file of files) {
      const row = rows.insertRow();
      row.insertCell().textContent = file.name;
      const cell = row.insertCell();
      cell.textContent = "…";
      const form = new FormData(many);
      form.set("file", file);
      form.set("act", act);
      try {
        const answer = await fetch(many.dataset.each, { method: "POST", body: form, headers: { "X-CSRF-Token": csrf } });
        const text = await answer.text();
        if (answer.headers.get("X-Part") === "yes") cell.innerHTML = text; // made for this place by the server
        else cell.textContent = `It was not taken (${answer.status}).`;
        row.className = answer.ok ? "good" : "bad";
      } catch {
        cell.textContent = "The server did not answer.";
        row.className = "bad";
      }
      localise(cell);
      bar.value += 1;
    }
    for (const button of buttons) button.disabled = false;
  });
}
