// The console of programs: runs a program without reloading the page, and shows its solutions as they arrive.
const form = document.querySelector("form[data-stream]");
const result = document.getElementById("result");
let running;

// Adds a part that the server has rendered: the whole result, or more rows of one of its lists.
function show({ part, html }) {
  if (part === "whole") {
    result.innerHTML = html; // escaped fragments from the server
  } else {
    const list = result.querySelector(`[data-part="${part}"]`);
    if (part === "end") list.innerHTML = html;
    else list.insertAdjacentHTML("beforeend", html);
  }
  if (part === "whole" || part === "end") {
    const shown = part === "whole" ? result : result.querySelector('[data-part="end"]');
    // The editor marks the errors of what was loaded. htmx names the element of an event itself.
    window.htmx?.trigger(shown.firstElementChild, "htmx:load");
  }
}

function finish(message) {
  const note = document.getElementById("running");
  if (!note) return;
  if (message) {
    note.classList.add("warn");
    note.querySelector("[role=status]").textContent = message;
    note.querySelector("button").remove();
  } else note.remove();
}

async function run(form, act) {
  running?.abort();
  const own = (running = new AbortController());
  const body = new FormData(form);
  body.set("act", act);
  try {
    const answer = await fetch(form.dataset.stream, { method: "POST", body, signal: own.signal, headers: { "X-CSRF-Token": document.querySelector('meta[name="csrf"]').content, "HX-Request": "true" } });
    if (!answer.headers.get("Content-Type").startsWith("application/x-ndjson")) {
      const text = await answer.text();
      if (answer.headers.get("X-Part") === "yes") result.innerHTML = text;
      else result.textContent = `The program was not run (${answer.status}).`;
      return;
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) show(JSON.parse(line));
      await new Promise((drawn) => setTimeout(drawn)); // let the page react between two parts
    }
    finish();
  } catch (error) {
    if (own.signal.aborted) finish("The program was stopped.");
    else {
      finish("The connection broke off, which ended the program.");
      if (!result.childElementCount) result.textContent = "The server is not reachable.";
    }
  } finally {
    if (running === own) running = undefined;
  }
}

document.addEventListener("submit", (event) => {
  if (!event.target.dataset.stream) return;
  event.preventDefault();
  run(event.target, event.submitter?.value ?? "sandbox");
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-stop]")) running?.abort();
});
// Control or command with the return key runs the program.
form?.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  event.stopPropagation();
  form.requestSubmit(form.querySelector('button[value="sandbox"]'));
}, true);
