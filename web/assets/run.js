// The page of a run of event rules: shows its steps without reloading the page.
import { stepBar } from "./step_bar.js";

const section = document.querySelector("[data-run]");

async function load(step) {
  const panel = document.getElementById("step");
  const answer = await fetch(`${section.dataset.run}?step=${step}`, { headers: { "HX-Request": "true" } });
  if (!answer.ok || answer.headers.get("X-Part") !== "yes" || step !== wanted) return;
  panel.innerHTML = await answer.text(); // an escaped fragment from the server
  window.htmx?.trigger(document.body, "htmx:load", { elt: panel.firstElementChild });
}

let wanted;
if (section && Number(section.dataset.last)) {
  const start = Number(section.dataset.at);
  const show = stepBar(section, Number(section.dataset.last), start, (step) => {
    if (wanted !== undefined && step !== wanted) load((wanted = step));
    wanted = step;
  });
  show(start);
  for (const link of document.querySelectorAll(".tree a[data-to]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      show(Number(link.dataset.to));
      section.scrollIntoView({ block: "nearest" });
    });
  }
}
