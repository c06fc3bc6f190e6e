// ---- Panes: what to draw where -----------------------------------------------------------------------------------------

const base = read();
const frameOf = new Map(frames.slice(0, ALL).map((frame, i) => [frame, i]));
let panes = [];               // {tree, up, at, from, to}: grows upwards?, its root's row, the visible weights
let rows = 1;
let whole = 0;                // the weight that is 100 %
let scale = 1;                // of weights before
let selected = null;          // {pane, node}
let built = "";

/** Rebuilds the panes if the state needs other trees. */
function build() {
  const wanted = JSON.stringify([state.focus, state.hide, state.reversed, state.ordered, state.sandwich]);
  if (wanted !== built) {
    built = wanted;
    let tree = base;
    for (const frame of state.hide) tree = hidden(tree, frameOf.get(frame) ?? -1);
    for (const frame of state.focus) tree = focused(tree, frameOf.get(frame) ?? -1);
    if (state.sandwich) {
      const frame = frameOf.get(state.sandwich) ?? ALL;
      panes = [{ tree: callees(tree, frame) }, { tree: callers(tree, frame), ownRoot: false }];
    } else if (state.ordered) {
      const framesOf = (names) => names.map((name) => frameOf.get(name) ?? -1);
      panes = [{ tree: ordered(base, framesOf(state.focus), framesOf(state.hide)) }];
    } else {
      panes = [{ tree: state.reversed ? reversed(tree) : tree }];
    }
    for (const pane of panes) pane.ownRoot ??= true;
    selected = null;
    results = null;
  }
  const total = (all) => base[all][0];
  scale = state.normalise && total("allBefore") ? total("allAfter") / total("allBefore") : 1;
  whole = total(state.width === "before" ? "allBefore" : "allAfter");
  const above = panes.length > 1 ? panes[1].tree.rows - 1 : 0;
  rows = panes[0].tree.rows + above;
  panes.forEach((pane, i) => {
    lay(pane.tree);
    pane.up = state.inverted === (i === 1);
    pane.at = state.inverted ? above : rows - 1 - above;
    const node = state.zoom[i] < pane.tree.n ? state.zoom[i] : 0;
    pane.zoom = node;
    pane.goal = [pane.tree.x[node], pane.tree.x[node] + pane.tree.w[node]];
  });
}

const rowOf = (pane, node) => pane.at + (pane.up ? -1 : 1) * pane.tree.depth[node];
