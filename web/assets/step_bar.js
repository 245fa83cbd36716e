// The bar of a step-by-step replay: links to steps, the status, and a button that plays all steps. The page works with
// plain links; this script shows the steps without reloading.

// `section` contains links with `data-step`, the status, and the parts of steps with `data-iteration`. `onShow` is
// called with the number of the step.
export function stepBar(section, last, start, onShow) {
  const links = [...section.querySelectorAll("a[data-step]")];
  const status = section.querySelector("[data-status]");
  let at = start;
  let timer;
  const target = (name) => ({ first: 0, back: at - 1, next: at + 1, last })[name];
  const show = (step) => {
    at = Math.max(0, Math.min(step, last));
    onShow(at);
    for (const part of section.ownerDocument.querySelectorAll("[data-iteration]")) {
      const number = Number(part.dataset.iteration);
      part.classList.toggle("current", number === at && !("fired" in part.dataset));
      part.classList.toggle("ahead", number > at);
    }
    for (const link of links) {
      const to = target(link.dataset.step);
      link.classList.toggle("off", to < 0 || to > last || to === at);
      link.setAttribute("aria-disabled", String(link.classList.contains("off")));
    }
    status.textContent = status.dataset[at === 0 ? "before" : at === last ? "end" : "during"].replace("{at}", at).replace("{of}", last);
    const url = new URL(window.location.href);
    url.searchParams.set("step", at);
    history.replaceState(history.state, "", url);
  };
  const stop = () => {
    clearInterval(timer);
    timer = undefined;
    play.textContent = "Play";
  };
  for (const link of links) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      stop();
      show(target(link.dataset.step));
    });
  }
  const play = document.createElement("button");
  play.type = "button";
  play.textContent = "Play";
  play.title = "Play all steps";
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (at >= last) show(0);
    play.textContent = "Stop";
    timer = setInterval(() => (at < last ? show(at + 1) : stop()), 1200);
  });
  links.at(-1)?.after(" ", play);
  return show;
}
