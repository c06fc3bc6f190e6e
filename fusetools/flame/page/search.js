// ---- Search ----------------------------------------------------------------------------------------------------------

let found = null;             // {search, wrong, frames, panes: [{own, below}], list, share}

/** Looks up the search in all names, and where they are in the panes. */
function find() {
  if (found && found.search === state.search && found.width === state.width) return;
  const last = found;
  found = { search: state.search, width: state.width, wrong: "", panes: [], list: [], share: 0, at: -1 };
  if (!state.search) return;
  let pattern;
  try {
    pattern = new RegExp(state.search, /[A-Z]/.test(state.search) ? "u" : "iu");
  } catch {
    try {
      pattern = new RegExp(state.search, /[A-Z]/.test(state.search) ? "" : "i");
    } catch {
      // Half written: what was found before stays.
      if (last && last.panes.length === panes.length) found = { ...last, search: state.search };
      found.wrong = "not a regular expression";
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
    found.panes.push({ own, below });
    // Matches within matches are counted once, with the outermost.
    for (let i = 0; i < tree.n; ) {
      if (own[i] && tree.w[i] > 0 && (i > 0 || pane.ownRoot)) {
        found.list.push({ pane: which, node: i });
        if (which === 0) found.share += tree.w[i];
        i = tree.end[i];
      } else i++;
    }
  });
  found.list.sort((a, b) => panes[b.pane].tree.w[b.node] - panes[a.pane].tree.w[a.node]);
}

function step(by) {
  find();
  const { list } = found;
  if (!list.length) return;
  found.at = found.at < 0 && by < 0 ? list.length - 1 : (found.at + by + list.length) % list.length;
  const match = list[found.at];
  const pane = panes[match.pane];
  const { tree } = pane;
  selected = match;
  // Zoom out until it is in sight, in where it would be too narrow to be seen.
  let node = pane.zoom;
  while (node > 0 && !(tree.x[match.node] >= tree.x[node] && tree.x[match.node] + tree.w[match.node] <= tree.x[node] + tree.w[node])) {
    node = tree.parent[node];
  }
  if ((tree.w[match.node] / tree.w[node]) * size.width < 24) node = match.node;
  zoom(match.pane, node);
  reveal(match);
}
