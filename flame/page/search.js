// ---- Search ----------------------------------------------------------------------------------------------------------

let results = null;           // {search, wrong, frames, panes: [{own, below}], list, share}

/** Finds the names that match the search, and their nodes in the panes. */
function find() {
  if (results && results.search === state.search && results.width === state.width) return;
  const last = results;
  results = { search: state.search, width: state.width, wrong: "", panes: [], list: [], share: 0, at: -1 };
  if (!state.search) return;
  let pattern;
  try {
    pattern = new RegExp(state.search, /[A-Z]/.test(state.search) ? "u" : "iu");
  } catch {
    try {
      pattern = new RegExp(state.search, /[A-Z]/.test(state.search) ? "" : "i");
    } catch {
      // Half typed: keep the previous results.
      if (last && last.panes.length === panes.length) results = { ...last, search: state.search };
      results.wrong = "not a regular expression";
      return;
    }
  }
  const matching = new Uint8Array(frames.length);
  for (let i = 0; i < ALL; i++) matching[i] = pattern.test(nameOf(i)) ? 1 : 0;
  panes.forEach((pane, which) => {
    const { tree } = pane;
    const own = new Uint8Array(tree.n);
    const below = new Uint8Array(tree.n);
    for (let i = 0; i < tree.n; i++) own[i] = matching[tree.frame[i]];
    for (let i = tree.n - 1; i > 0; i--) if (own[i] || below[i]) below[tree.parent[i]] = 1;
    results.panes.push({ own, below });
    // Nested matches are counted once, with the outermost.
    for (let i = 0; i < tree.n; ) {
      if (own[i] && tree.w[i] > 0 && (i > 0 || pane.ownRoot)) {
        results.list.push({ pane: which, node: i });
        if (which === 0) results.share += tree.w[i];
        i = tree.end[i];
      } else i++;
    }
  });
  results.list.sort((a, b) => panes[b.pane].tree.w[b.node] - panes[a.pane].tree.w[a.node]);
}

function step(by) {
  find();
  const { list } = results;
  if (!list.length) return;
  results.at = results.at < 0 && by < 0 ? list.length - 1 : (results.at + by + list.length) % list.length;
  const match = list[results.at];
  const pane = panes[match.pane];
  const { tree } = pane;
  selected = match;
  // Zoom out until the match is in sight, zoom in if it would be too narrow.
  let node = pane.zoom;
  while (node > 0 && !(tree.x[match.node] >= tree.x[node] && tree.x[match.node] + tree.w[match.node] <= tree.x[node] + tree.w[node])) {
    node = tree.parent[node];
  }
  if ((tree.w[match.node] / tree.w[node]) * size.width < 24) node = match.node;
  zoom(match.pane, node);
  reveal(match);
}
