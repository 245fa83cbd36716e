// Diagrams in layers: atomic rules and how they are shared, a filter replay step by step, the classes of a schema. The
// page contains the same information as text.
import cytoscape from "cytoscape";
import { layeredLayout } from "./layered_layout.js";
import { stepBar } from "./step_bar.js";

const FONT = 12;
const LINE = 1.35 * FONT;
const FAMILY = 'system-ui, "Segoe UI", Roboto, sans-serif';
const MONO = getComputedStyle(document.documentElement).getPropertyValue("--mono").trim();
const MARGIN = 16;
const MIN_NODES_FOR_MAP = 60; // larger diagrams are fitted into view, and get a search field
const pen = document.createElement("canvas").getContext("2d");
pen.font = `600 ${FONT}px ${FAMILY}`;

// Cytoscape adds its own style element unless one with this id exists. This one has the nonce of the page.
const own = document.createElement("style");
own.id = "__________cytoscape_stylesheet";
own.nonce = document.querySelector('meta[name="nonce"]')?.content ?? "";
own.textContent = ".__________cytoscape_container { position: relative; }";
document.head.append(own);

function size(label) {
  const lines = label.split("\n");
  return { width: Math.ceil(Math.max(...lines.map((line) => pen.measureText(line).width))) + 22, height: lines.length * LINE + 14 };
}

function look(isMap) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const [ink, paper, line, quiet, accent, soft, warn, warnSoft, blue] = ["--ink", "--paper", "--line", "--quiet", "--accent", "--accent-soft", "--warn", "--warn-soft", "--series-3"].map(colour);
  return [
    { selector: "node[width]", style: { width: "data(width)", height: "data(height)" } },
    { selector: "node", style: { shape: "round-rectangle", label: "data(label)", "text-valign": "center", "text-halign": "center", "text-wrap": "wrap", "line-height": 1.35, "font-size": FONT, "font-family": FAMILY, color: ink, "background-color": paper, "border-width": 1.2, "border-color": quiet } },
    { selector: "node.join", style: { shape: "round-rectangle", "background-color": colour("--code") } },
    { selector: "node.builtin", style: { color: quiet, "border-style": "dashed" } },
    { selector: "node.end", style: { "border-width": 3, "border-color": accent } },
    { selector: "node.shared", style: { "background-color": soft } },
    { selector: "node.new", style: { "border-style": "dashed" } },
    { selector: ":parent", style: { shape: "round-rectangle", label: "data(label)", "text-valign": "top", "text-halign": "center", "text-margin-y": -3, "font-size": 11, "text-background-color": paper, "text-background-opacity": 0.9, "text-background-padding": 2, color: quiet, "background-color": line, "background-opacity": 0.28, "border-width": 1, "border-style": "dashed", "border-color": quiet, padding: 10 } },
    { selector: "edge", style: { width: 1.3, "line-color": quiet, "curve-style": "bezier", "target-arrow-shape": "triangle", "target-arrow-color": quiet, "arrow-scale": 0.9, label: "data(label)", "font-size": 11, "font-family": FAMILY, color: quiet, "text-background-color": paper, "text-background-opacity": 0.9, "text-background-padding": 2 } },
    { selector: "edge:loop", style: { "curve-style": "bezier", "loop-direction": "0deg", "loop-sweep": "-60deg", "control-point-step-size": 50 } },
    { selector: "edge.weak", style: { "line-style": "dashed" } },
    { selector: "edge.strong", style: { width: 2.2, "line-color": accent, "target-arrow-color": accent } },
    { selector: "node.cycle", style: { "border-width": 3, "border-color": warn } },
    { selector: "node.endless", style: { "border-width": 3, "border-color": colour("--bad") } },
    { selector: "edge.cycle", style: { width: 2.2, "line-color": warn, "target-arrow-color": warn } },
    { selector: "edge.endless", style: { width: 2.2, "line-color": colour("--bad"), "target-arrow-color": colour("--bad") } },
    { selector: "edge.conflict", style: { width: 2, "line-style": "dotted", "line-color": blue, "target-arrow-shape": "none" } },
    { selector: "edge.subclass", style: { "line-color": blue, "target-arrow-color": blue, "target-arrow-fill": "hollow", "arrow-scale": 1.3 } },
    ...(isMap
      ? [
          { selector: "edge", style: { "curve-style": "straight", width: 1, "line-opacity": 0.18, "target-arrow-shape": "none" } },
          { selector: "edge.near", style: { width: 3, "line-opacity": 1, "line-color": blue, "target-arrow-shape": "triangle", "target-arrow-color": blue, "arrow-scale": 1.6 } },
          { selector: "node", style: { "min-zoomed-font-size": 5 } },
          { selector: ":parent", style: { "text-margin-y": -6, color: ink, "min-zoomed-font-size": 0 } },
        ]
      : []),
    { selector: ".far", style: { opacity: 0.22 } },
    { selector: "node.lit", style: { "background-color": soft, "border-color": accent } },
    { selector: "node.now", style: { "background-color": warnSoft, "border-color": warn, "border-width": 3, color: ink } },
    { selector: "edge.now", style: { width: 3, "line-color": warn, "line-opacity": 1, "target-arrow-color": warn } },
    { selector: "node:selected", style: { "border-color": blue, "border-width": 3 } },
  ];
}

function elements(drawing, isMap) {
  const known = new Set(drawing.nodes.map(({ id }) => id));
  const labels = new Map((drawing.groups ?? []).map(({ id, label }) => [`group ${id}`, label]));
  const box = ({ group, block }) => (group != null ? `group ${group}` : isMap && block ? `block ${block}` : undefined);
  const boxes = new Set(drawing.nodes.map(box).filter(Boolean));
  return [
    ...[...boxes].map((id) => ({ data: { id, label: labels.get(id) ?? id.replace(/^\w+ /, "") }, selectable: false, grabbable: false })),
    ...drawing.nodes.map((node) => ({
      data: { ...(node.place ? {} : size(node.label)), ...node, plain: node.label, parent: box(node) },
      ...(node.place && { position: { x: node.place[0], y: node.place[1] } }),
      classes: [node.kind, ...(node.marks ?? [])],
    })),
    ...drawing.edges.filter(({ from, to }) => known.has(from) && known.has(to)).map(({ from, to, label, kind, line }) => ({ data: { source: from, target: to, label: label ?? "", line }, classes: [kind] })),
  ];
}

// Map layout for many rules: similar rules share a box, and boxes are stacked by depth with join rules above their
// inputs. A plain layered layout would be hundreds of boxes wide.
function layoutMap(cy, container, font = 24) {
  const depth = new Map();
  const deep = (node) => {
    if (!depth.has(node.id())) depth.set(node.id(), Math.max(-1, ...node.incomers("node").map(deep)) + 1);
    return depth.get(node.id());
  };
  const leaves = cy.nodes().filter((node) => !node.isParent());
  const boxes = new Map();
  leaves.forEach((node) => {
    const key = node.data("parent") ?? "";
    boxes.set(key, [...(boxes.get(key) ?? []), node]);
  });
  const blocks = [...boxes].map(([key, nodes]) => {
    const cell = { w: Math.max(...nodes.map((node) => node.data("width"))) + 14, h: Math.max(...nodes.map((node) => node.data("height"))) + 14 };
    const columns = Math.max(1, Math.round(Math.sqrt((nodes.length * cell.h * 2) / cell.w)));
    const rows = Math.ceil(nodes.length / columns);
    nodes.sort((one, other) => one.data("plain").localeCompare(other.data("plain"), undefined, { numeric: true }));
    const named = (1.2 * pen.measureText(cy.getElementById(key).data("label") ?? "").width * font) / FONT;
    return { key, nodes, cell, columns, w: Math.max(columns * cell.w, named) + 50, h: rows * cell.h + 2 * font + 30, depth: Math.max(...nodes.map(deep)) };
  });
  const sum = Math.sqrt(blocks.reduce((area, { w, h }) => area + w * h, 0));
  const room = (packed) => Math.min(container.clientWidth / packed.w, container.clientHeight / packed.h);
  const tried = [1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4].map((wide) => pack(blocks, wide * sum));
  const best = tried.reduce((one, other) => (room(other) > room(one) ? other : one));
  for (const { block, x, y } of best.places) {
    const left = x + (block.w - block.columns * block.cell.w) / 2; // centred below the box label
    block.nodes.forEach((node, number) =>
      node.position({ x: left + ((number % block.columns) + 0.5) * block.cell.w, y: y + 1.6 * font + 15 + (Math.floor(number / block.columns) + 0.5) * block.cell.h }),
    );
  }
  // Keep the box labels readable at any zoom level.
  const size = 13 / Math.min(1, room(best));
  cy.nodes(":parent").style("font-size", size);
  if (size > 1.2 * font) layoutMap(cy, container, size);
}

// Places boxes from left to right, in as many centred lines as a layer needs.
function pack(blocks, wide) {
  const lines = [];
  for (const layer of [...new Set(blocks.map((block) => block.depth))].sort((a, b) => b - a)) {
    let line;
    for (const block of blocks.filter((one) => one.depth === layer).sort((a, b) => b.h - a.h)) {
      if (!line || line.w + block.w > wide) lines.push((line = { w: 0, h: 0, blocks: [], isFirst: !line }));
      line.blocks.push(block);
      line.w += block.w;
      line.h = Math.max(line.h, block.h);
    }
  }
  const w = Math.max(...lines.map((line) => line.w));
  const places = [];
  let y = 0;
  for (const line of lines) {
    if (line.isFirst) y += 60;
    let x = (w - line.w) / 2;
    for (const block of line.blocks) {
      places.push({ block, x, y });
      x += block.w;
    }
    y += line.h;
  }
  return { places, w, h: y };
}

// Lays out a diagram in layers.
function layOut(cy, direction, container) {
  if (cy.scratch("map")) return layoutMap(cy, container);
  const edges = cy.edges().not(":loop");
  const label = (text) => (text ? { width: Math.ceil(pen.measureText(text).width) + 12, height: LINE } : {});
  const laid = layeredLayout(
    cy.nodes().map((node) => ({ id: node.id(), width: node.data("width"), height: node.data("height") })),
    edges.map((edge) => ({ id: edge.id(), from: edge.source().id(), to: edge.target().id(), label: label(edge.data("label")) })),
    { direction, nodeGap: cy.edges(":loop").nonempty() ? 84 : 24 },
  );
  cy.nodes().positions((node) => laid.place(node.id()));
  edges.forEach((edge) => edge.data("line", laid.line(edge.id())));
  drawLines(edges);
}

// The server lays out small diagrams of rules.
function drawAsLaidOut(cy, { fontSize, lineHeight }) {
  cy.nodes().style({ "font-family": MONO });
  cy.nodes(":childless").style({ "font-size": fontSize, "line-height": lineHeight });
  cy.edges().style("z-compound-depth", "bottom"); // below the labels of groups, which they cross
  drawLines(cy.edges());
}

// Draws edges with the corners that their layout has found.
function drawLines(edges) {
  for (const edge of edges) {
    const points = edge.data("line").map(([x, y]) => ({ x, y }));
    const [start, end] = [points[0], points.at(-1)];
    const [dx, dy] = [end.x - start.x, end.y - start.y];
    const square = dx * dx + dy * dy;
    const corners = points.slice(1, -1).map(({ x, y }) => [x - start.x, y - start.y]);
    const from = ({ x, y }, node) => `${x - node.position("x")}px ${y - node.position("y")}px`;
    edge.style({
      "curve-style": corners.length ? "round-segments" : "straight",
      "segment-radii": "8",
      "edge-distances": "endpoints",
      "source-endpoint": from(start, edge.source()),
      "target-endpoint": from(end, edge.target()),
      ...(corners.length && {
        "segment-weights": corners.map(([x, y]) => (x * dx + y * dy) / square).join(" "),
        "segment-distances": corners.map(([x, y]) => (y * dx - x * dy) / Math.sqrt(square)).join(" "),
      }),
    });
  }
}

// Moves a diagram that the browser has laid out to the corner of its container, and returns its size.
function cornered(cy) {
  const box = cy.elements().boundingBox();
  cy.nodes(":childless").shift({ x: MARGIN - box.x1, y: MARGIN - box.y1 });
  return { width: box.w + 2 * MARGIN, height: box.h + 2 * MARGIN };
}

// Shows a diagram in its own size, in a container that scrolls.
function scrollingView(cy, { width, height }, container, sheet) {
  let scale = 1;
  const show = (to) => {
    const middle = (container.scrollLeft + container.clientWidth / 2) / container.scrollWidth;
    scale = Math.max(0.2, Math.min(3, to));
    sheet.style.width = `${Math.max(container.clientWidth, width * scale)}px`;
    sheet.style.height = `${height * scale}px`;
    cy.resize();
    cy.viewport({ zoom: scale, pan: { x: Math.max(0, (container.clientWidth - width * scale) / 2), y: 0 } });
    container.scrollLeft = middle * container.scrollWidth - container.clientWidth / 2;
  };
  const whole = () => Math.min(1, container.clientWidth / width);
  show(whole() > 0.85 ? whole() : 1); // smaller text is hard to read
  return { zoom: (by) => show(scale * by), fit: () => show(whole()), resize: () => show(scale) };
}

// Fits the elements into view, without enlarging them.
function fit(cy, some, room = 18) {
  cy.fit(some, room);
  if (cy.zoom() > 1.1) {
    cy.zoom(1.1);
    cy.center(some);
  }
}

function button(name, label, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = label;
  if (!/\w/.test(label)) made.setAttribute("aria-label", name); // only for labels that are symbols
  made.title = name;
  made.addEventListener("click", act);
  return made;
}

function draw(figure) {
  const drawing = JSON.parse(figure.dataset.graph);
  delete figure.dataset.graph;
  if (!drawing.nodes.length) return;
  const bar = document.createElement("div");
  bar.className = "graph-bar";
  const container = document.createElement("div");
  container.className = "canvas";
  container.classList.toggle("large", drawing.nodes.length > 12);
  container.tabIndex = 0;
  container.setAttribute("role", "application");
  container.setAttribute("aria-label", `${figure.getAttribute("aria-label") ?? "Diagram"}: use the arrow keys to move, plus and minus to zoom, 0 to fit. The text below has the same content.`);
  const status = document.createElement("p");
  status.className = "chosen quiet";
  status.setAttribute("role", "status");
  figure.append(bar, status, container);

  const isMap = drawing.nodes.length >= MIN_NODES_FOR_MAP && drawing.nodes.some(({ block, group }) => block || group != null);
  const isLaidOut = drawing.width != null && drawing.edges.every(({ line }) => line);
  const scrolls = drawing.nodes.length < MIN_NODES_FOR_MAP;
  const sheet = scrolls ? container.appendChild(document.createElement("div")) : container;
  const cy = cytoscape({ container: sheet, elements: elements(drawing, isMap), style: look(isMap), layout: { name: "preset", fit: false }, minZoom: 0.04, maxZoom: 3, userZoomingEnabled: false, userPanningEnabled: !scrolls, boxSelectionEnabled: false, autoungrabify: true });
  cy.scratch("map", isMap);
  cy.scratch("laid", isLaidOut);
  if (isLaidOut) drawAsLaidOut(cy, drawing);
  else layOut(cy, drawing.direction ?? "TB", container);
  figure.classList.add("drawn");
  container.classList.toggle("scrolls", scrolls);
  const diagram = { cy, figure, container };
  const view = scrolls
    ? scrollingView(cy, isLaidOut ? drawing : cornered(cy), container, sheet)
    : {
        zoom: (by) => cy.zoom({ level: cy.zoom() * by, renderedPosition: { x: container.clientWidth / 2, y: container.clientHeight / 2 } }),
        fit: () => fit(cy),
        resize: () => fit(cy),
      };
  if (!scrolls) fit(cy);

  bar.append(button("Zoom in", "+", () => view.zoom(1.3)), button("Zoom out", "−", () => view.zoom(1 / 1.3)), button("Fit to view", "Fit", () => view.fit()));
  if (drawing.nodes.length >= MIN_NODES_FOR_MAP) bar.append(search(diagram, status));

  // The mouse wheel scrolls the page unless the diagram has the focus.
  container.addEventListener("focus", () => cy.userZoomingEnabled(!scrolls));
  container.addEventListener("pointerdown", () => container.focus());
  container.addEventListener("blur", () => cy.userZoomingEnabled(false));
  container.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves && scrolls) return; // the container scrolls
    if (event.key in moves) cy.panBy({ x: moves[event.key][0], y: moves[event.key][1] });
    else if (event.key === "+" || event.key === "=") view.zoom(1.3);
    else if (event.key === "-") view.zoom(1 / 1.3);
    else if (event.key === "0") view.fit();
    else if (event.key === "Escape") cy.elements().unselect();
    else return;
    event.preventDefault();
  });

  // Selecting a node shows its full text and dims everything that is not an input or a dependant.
  cy.on("select", "node", ({ target }) => {
    if (target.isParent()) return;
    const near = target.union(target.predecessors()).union(target.successors());
    cy.elements().not(near).not(":parent").addClass("far");
    near.edges().addClass("near");
    describe(status, target.data());
  });
  cy.on("unselect", "node", () => {
    cy.elements().removeClass("far near");
    status.replaceChildren();
  });
  cy.on("dbltap", "node", ({ target }) => target.data("href") && window.location.assign(target.data("href")));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => cy.style(look(isMap)));
  let width = container.clientWidth;
  new ResizeObserver(() => {
    if (!scrolls) cy.resize();
    if (container.clientWidth !== width) view.resize();
    width = container.clientWidth;
  }).observe(container);
  if (figure.dataset.steps) replay(diagram, JSON.parse(figure.dataset.steps));
  figure.cy = cy;
}

function describe(element, { title, plain, href }) {
  const text = document.createElement("bdi");
  text.textContent = title ?? plain;
  element.replaceChildren(text);
  if (!href) return;
  const link = document.createElement("a");
  link.href = href;
  link.textContent = "Open";
  element.append(" ", link);
}

function search({ cy }, status) {
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = "Find in the diagram";
  input.setAttribute("aria-label", "Find in the diagram");
  input.addEventListener("input", () => {
    const text = input.value.trim().toLowerCase();
    cy.elements().unselect();
    cy.elements().removeClass("far");
    if (!text) return fit(cy);
    const found = cy.nodes().filter((node) => !node.isParent() && `${node.data("plain")} ${node.data("title") ?? ""}`.toLowerCase().includes(text));
    cy.elements().not(found).not(":parent").addClass("far");
    status.textContent = found.length === 1 ? "1 found" : `${found.length} found`;
    if (found.length) fit(cy, found, 60);
  });
  return input;
}

// Filter replay: each step shows the resources that rules find. The page works with plain links; this script shows the
// steps in the diagram without reloading.
function replay({ cy, figure, container }, steps) {
  const start = Number(figure.dataset.at ?? 0);
  const show = stepBar(figure.closest("[data-replay]"), steps.length, start, (at) =>
    cy.batch(() => {
      cy.elements().removeClass("now lit");
      cy.nodes().not(":parent").forEach((node) => node.data("label", node.data("plain")));
      steps.slice(0, at).forEach((rows, number) => {
        const isNow = number === at - 1;
        for (const { node: id, lines } of rows) {
          const node = cy.getElementById(id);
          if (node.empty()) continue;
          node.addClass(isNow ? "now" : "lit");
          const label = [node.data("label"), ...lines].join("\n");
          node.data({ label });
          if (isNow) node.incomers("edge").filter((edge) => edge.source().is(".lit, .now")).addClass("now");
        }
      });
    }),
  );
  // Size each node for its longest label, so that nodes do not move between steps.
  if (cy.scratch("laid")) return show(start); // the server made room for all lines
  const finalLines = new Map();
  for (const rows of steps) for (const { node, lines } of rows) finalLines.set(node, [...(finalLines.get(node) ?? []), ...lines]);
  for (const [id, lines] of finalLines) {
    const node = cy.getElementById(id);
    if (node.nonempty()) node.data(size([node.data("plain"), ...lines].join("\n")));
  }
  layOut(cy, figure.dataset.direction ?? "TB", container);
  fit(cy);
  show(start);
}

function drawAll(root) {
  for (const figure of root.querySelectorAll("figure[data-graph]")) draw(figure);
}

drawAll(document);
document.addEventListener("htmx:load", (event) => drawAll(event.detail.elt.parentElement ?? event.detail.elt));
