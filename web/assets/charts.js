// Time series charts. Without this script, the page shows the same values in a table.
import "uplot/dist/uPlot.min.css";
import uPlot from "uplot";

const style = getComputedStyle(document.documentElement);
const colour = (name) => style.getPropertyValue(name).trim();

for (const figure of document.querySelectorAll("figure[data-points]")) {
  const points = JSON.parse(figure.dataset.points);
  const container = figure.querySelector(".chart");
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const chart = new uPlot(
    {
      width: container.clientWidth,
      height: 140,
      cursor: { points: { size: 6 } },
      legend: { live: true },
      series: [
        {},
        { label: figure.dataset.unit, stroke: colour("--series-1"), width: 1.5, fill: colour("--series-fill"), points: { show: false } },
      ],
      axes: [axis, { ...axis, size: 48, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString()) }],
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    },
    points,
    container,
  );
  new ResizeObserver(() => chart.setSize({ width: container.clientWidth, height: 140 })).observe(container);
}
