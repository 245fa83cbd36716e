// Time series charts. Without this script, the page shows the same values in a table.
import "uplot/dist/uPlot.min.css";
import uPlot from "uplot";

const HEIGHT = 140;
const style = getComputedStyle(document.documentElement);
const colour = (name) => style.getPropertyValue(name).trim();

function draw(figure) {
  const container = figure.querySelector(".chart");
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const chart = new uPlot(
    {
      width: container.clientWidth,
      height: HEIGHT,
      cursor: { points: { size: 6 } },
      legend: { live: true },
      series: [
        {},
        { label: figure.dataset.unit, stroke: colour("--series-1"), width: 1.5, fill: colour("--series-fill"), points: { show: false } },
      ],
      axes: [axis, { ...axis, size: 48, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString()) }],
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    },
    JSON.parse(figure.dataset.points),
    container,
  );
  new ResizeObserver(() => chart.setSize({ width: container.clientWidth, height: HEIGHT })).observe(container);
  return chart;
}

const figures = [...document.querySelectorAll("figure[data-points]")];
const drawn = figures.map(draw);

// After changes and every minute, the values are read again. Charts, open tables and the pointer stay where they are.
const REFRESH_MS = 60_000;
const RECORDED_AFTER_MS = 6_000; // workers record their metrics every few seconds
const charts = document.querySelector("[data-refresh]");
let waiting = false;

async function refresh() {
  const answer = await fetch(charts.dataset.refresh).catch(() => null);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const found = [...page.querySelectorAll("figure[data-points]")];
  if (found.length !== figures.length) return; // signed out
  for (const [index, figure] of figures.entries()) {
    figure.dataset.points = found[index].dataset.points;
    for (const part of ["figcaption", "details tbody"]) {
      const [old, now] = [figure.querySelector(part), found[index].querySelector(part)];
      if (old && now) old.replaceChildren(...now.childNodes);
    }
    drawn[index].setData(JSON.parse(figure.dataset.points));
  }
  charts.dispatchEvent(new CustomEvent("mdv:refreshed", { bubbles: true }));
}

if (charts) {
  setInterval(refresh, REFRESH_MS);
  document.body.addEventListener("mdv:change", () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      refresh();
    }, RECORDED_AFTER_MS);
  });
}
