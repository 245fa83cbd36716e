// A layered layout by dagre. Within a layer, an edge runs straight through a gap between boxes or labels. It slopes between
// layers only, so that it runs behind no box.
import dagre from "@dagrejs/dagre";

const LAYER_GAP = 46;
const CORNER_GAP = 4; // between a layer and the corners of the edges that leave it

// Boxes are {id, width, height}. Edges are {id, from, to, label}; a label has a width and a height, or is empty.
export function layeredLayout(boxes, edges, { direction, nodeGap }) {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: direction, nodesep: nodeGap, edgesep: 12, ranksep: LAYER_GAP });
  for (const { id, width, height } of boxes) graph.setNode(id, { width, height });
  for (const { id, from, to, label } of edges) graph.setEdge(from, to, { ...label, labelpos: "c" }, id);
  dagre.layout(graph);
  const axes = direction === "LR" || direction === "RL" ? ["x", "y", "width", "height"] : ["y", "x", "height", "width"];
  const layers = new Layers([...graph.nodes().map((id) => graph.node(id)), ...graph.edges().map((edge) => graph.edge(edge))], axes);
  const lines = new Map(edges.map(({ id, from, to }) => [id, layers.line(graph.node(from), graph.node(to), graph.edge(from, to, id).points)]));
  const place = (id) => ({ x: graph.node(id).x, y: graph.node(id).y });
  return { place, line: (id) => lines.get(id) };
}

// `axes`: the coordinates and sizes of boxes along and across the direction of the edges.
class Layers {
  constructor(boxes, axes) {
    this.axes = axes;
    const [along, , length] = axes;
    this.halves = new Map(); // half of the length of each layer, by its centre
    for (const box of boxes.filter((one) => one[length])) {
      const centre = Math.round(box[along]);
      this.halves.set(centre, Math.max(this.halves.get(centre) ?? 0, box[length] / 2));
    }
  }

  line(source, target, points) {
    const [along] = this.axes;
    const forth = Math.sign(target[along] - source[along]) || 1;
    const through = points.slice(1, -1).flatMap((point) => this.#through(point, forth));
    const all = [...this.#end(source, points[1], forth), ...through, ...this.#end(target, points.at(-2), -forth).reverse()];
    return all.map(({ x, y }) => [x, y]);
  }

  #half(point) {
    return this.halves.get(Math.round(point[this.axes[0]])) ?? 0;
  }

  #point(along, across) {
    return { [this.axes[0]]: along, [this.axes[1]]: across };
  }

  // Where an edge enters and leaves a layer.
  #through(point, forth) {
    const [along, across] = this.axes;
    const half = this.#half(point);
    return half ? [-half, half].map((by) => this.#point(point[along] + forth * by, point[across])) : [point];
  }

  // Where an edge meets a box, on the side that faces the next layer, and where it leaves the layer.
  #end(box, next, forth) {
    const [along, across, length, breadth] = this.axes;
    const room = Math.max(0, box[breadth] / 2 - 8);
    const place = Math.max(box[across] - room, Math.min(box[across] + room, next[across]));
    return [box[length] / 2, this.#half(box) + CORNER_GAP].map((by) => this.#point(box[along] + forth * by, place));
  }
}
