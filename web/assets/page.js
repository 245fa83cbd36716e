// Common to all pages: htmx, localised times and numbers, live updates, file upload.
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
// Error responses that are page fragments are shown like any other fragment.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status >= 400) event.detail.shouldSwap = event.detail.xhr.getResponseHeader("X-Part") === "yes";
});

const dateTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const ago = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const number = new Intl.NumberFormat();
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

function localise(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    element.title = dateTime.format(at);
    if (!element.hasAttribute("data-ago")) {
      element.textContent = dateTime.format(at);
      continue;
    }
    const seconds = (at - Date.now()) / 1000;
    const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? UNITS.at(-1);
    element.textContent = ago.format(Math.round(seconds / size), unit);
  }
  for (const element of root.querySelectorAll("[data-from][data-to]")) {
    element.textContent = dateTime.formatRange(new Date(element.dataset.from), new Date(element.dataset.to));
  }
  for (const element of root.querySelectorAll("data[value]")) {
    const value = Number(element.value);
    if (Number.isFinite(value)) element.textContent = number.format(value);
  }
}

localise(document);
document.addEventListener("htmx:load", (event) => localise(event.detail.elt));
document.addEventListener("mdv:refreshed", (event) => localise(event.target));
setInterval(() => localise(document), 30_000);

// In a narrow window the navigation scrolls horizontally: bring the current page into view.
const current = document.querySelector(".top nav a[aria-current]");
if (current) current.parentElement.scrollLeft = current.offsetLeft - (current.parentElement.clientWidth - current.offsetWidth) / 2;

// A secret is shown once: a page that the browser kept in memory is loaded again when the user goes back to it.
window.addEventListener("pageshow", (event) => {
  if (event.persisted && document.querySelector("[data-once]")) location.reload();
});

// Copy buttons.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim());
  button.textContent = "Copied";
});

// Live updates: the server sends an event, the page reloads the fragment.
const live = document.querySelector("[data-live]");
if (live && "EventSource" in window) {
  const source = new EventSource(live.dataset.live);
  let waiting = false;
  source.addEventListener("change", () => {
    if (waiting) return;
    waiting = true; // combine frequent events into one reload
    setTimeout(() => {
      waiting = false;
      htmx.trigger(document.body, "mdv:change");
    }, 500);
  });
  window.addEventListener("pagehide", () => source.close());
}

// Drag and drop: dropped files are put into the file field.
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

// A file over the limit is not sent: the form stays as it is.
const MIB = 2 ** 20;
const oversized = (file, form) => {
  const most = Number(form?.dataset.maxBytes);
  if (!most || file.size <= most) return "";
  return `${file.name} has ${number.format(Math.ceil((file.size / MIB) * 10) / 10)} MiB. The limit is ${number.format(most / MIB)} MiB.`;
};
for (const input of document.querySelectorAll('form[data-max-bytes] input[type="file"]')) {
  input.addEventListener("change", () => {
    const [file, ...others] = input.files;
    input.setCustomValidity(file && !others.length ? oversized(file, input.form) : "");
    input.reportValidity();
  });
}

// Several files are sent one after the other, with a result for each.
const many = document.querySelector("form[data-many]");
if (many) {
  const input = many.querySelector('input[type="file"]');
  const list = document.getElementById(many.dataset.many);
  const bar = list.querySelector("progress");
  many.addEventListener("submit", async (event) => {
    if (input.files.length < 2) return; // a single file is sent as a normal form
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
      const refusal = oversized(file, many);
      if (refusal) {
        cell.textContent = refusal;
        row.className = "bad";
        bar.value += 1;
        continue;
      }
      cell.textContent = "…";
      const form = new FormData(many);
      form.set("file", file);
      form.set("act", act);
      try {
        const answer = await fetch(many.dataset.each, { method: "POST", body: form, headers: { "X-CSRF-Token": csrf } });
        const text = await answer.text();
        if (answer.headers.get("X-Part") === "yes") cell.innerHTML = text; // an escaped fragment from the server
        else cell.textContent = `Upload failed (${answer.status}).`;
        row.className = answer.ok ? "good" : "bad";
      } catch {
        cell.textContent = "The server is not reachable.";
        row.className = "bad";
      }
      localise(cell);
      bar.value += 1;
    }
    for (const button of buttons) button.disabled = false;
  });
}
