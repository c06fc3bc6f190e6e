// ---- User actions ----------------------------------------------------------------------------------------------------

function select(what) {
  selected = what;
  showSelected();
  draw();
}

function zoom(which, node) {
  const to = [...state.zoom];
  to[which] = node;
  if (to.join() === state.zoom.join()) show();
  else go({ zoom: to }, true);
}

/** Scrolls to a node's row. */
function reveal({ pane, node }) {
  const y = rowOf(panes[pane], node) * ROW;
  if (y < scroll.scrollTop) scroll.scrollTop = y - 2 * ROW;
  else if (y + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = y + 3 * ROW - scroll.clientHeight;
}

/** The node at a position in the window; null if there is none. */
function nodeAt(clientX, clientY) {
  const box = scroll.getBoundingClientRect();
  const px = clientX - box.left;
  const row = Math.floor((clientY - box.top + scroll.scrollTop) / ROW);
  for (let which = 0; which < panes.length; which++) {
    const pane = panes[which];
    const depth = (row - pane.at) * (pane.up ? -1 : 1);
    if (depth < 0 || (depth === 0 && !pane.ownRoot) || depth >= pane.tree.rows || !(pane.to > pane.from)) continue;
    const { tree } = pane;
    const weight = pane.from + (px / scroll.clientWidth) * (pane.to - pane.from);
    let node = 0;
    while (tree.depth[node] < depth) {
      let callee = node + 1;
      while (callee < tree.end[node] && !(tree.w[callee] > 0 && weight < tree.x[callee] + tree.w[callee])) callee = tree.end[callee];
      // In time order there are gaps between callees.
      if (callee >= tree.end[node] || weight < tree.x[callee]) return null;
      node = callee;
    }
    return { pane: which, node };
  }
  return null;
}

/** Moves the selection to a caller, callee or neighbour. */
function walk(key) {
  if (!selected) {
    const which = 0;
    const what = { pane: which, node: panes[which].zoom };
    select(what);
    return reveal(what);
  }
  let { pane: which, node } = selected;
  const pane = panes[which];
  const { tree } = pane;
  const outwards = (key === "ArrowUp") !== pane.up;
  if (key === "ArrowUp" || key === "ArrowDown") {
    if (outwards && node > 0 && (tree.parent[node] > 0 || pane.ownRoot)) node = tree.parent[node];
    else if (outwards && panes.length > 1) {
      // Across the sandwich's middle; its root is drawn once, with the callees.
      const widest = node === 0 ? widestCallee(panes[1 - which].tree, 0) : 0;
      if (widest >= 0) [which, node] = [1 - which, widest];
    } else if (!outwards) {
      const callee = widestCallee(tree, node);
      if (callee >= 0) node = callee;
    }
  } else {
    const siblings = calleesOf(tree, tree.parent[node]);
    const at = siblings.indexOf(node) + (key === "ArrowRight" ? 1 : -1);
    if (siblings[at] !== undefined) node = siblings[at];
  }
  const what = { pane: which, node };
  // Zoom out to a node that is out of sight.
  const target = panes[which];
  let around = target.zoom;
  const t = target.tree;
  while (around > 0 && !(node >= around && node < t.end[around]) && !(around >= node && around < t.end[node])) around = t.parent[around];
  selected = what;
  if (around !== target.zoom) zoom(which, around);
  else select(what);
  reveal(what);
}

function calleesOf(tree, node) {
  const list = [];
  if (node < 0) return list;
  for (let i = node + 1; i < tree.end[node]; i = tree.end[i]) if (tree.w[i] > 0) list.push(i);
  return list;
}

function widestCallee(tree, node) {
  return calleesOf(tree, node).reduce((best, i) => (best < 0 || tree.w[i] > tree.w[best] ? i : best), -1);
}

const chosen = () => (selected ? panes[selected.pane].tree.frame[selected.node] : ALL);

function filter(key) {
  const frame = chosen();
  if (frame === ALL) return;
  const name = frames[frame];
  if (key === "sandwich") go({ sandwich: name, zoom: [0, 0] }, true);
  else if (!state[key].includes(name)) go({ [key]: [...state[key], name], zoom: [0, 0] }, true);
}

const toggle = (key) => go({ [key]: !state[key], ...(key === "reversed" || key === "ordered" ? { zoom: [0, 0] } : {}) });

/** Undoes one step: selection, search, zoom, the last filter. */
function undo() {
  if (selected) select(null);
  else if (state.search) go({ search: "" });
  else if (state.zoom[0] || state.zoom[1]) go({ zoom: [0, 0] }, true);
  else if (state.sandwich) go({ sandwich: "" }, true);
  else if (state.hide.length) go({ hide: state.hide.slice(0, -1) }, true);
  else if (state.focus.length) go({ focus: state.focus.slice(0, -1) }, true);
}

const actions = {
  "/": () => element("search").select(),
  n: () => step(1),
  N: () => step(-1),
  0: () => go({ zoom: [0, 0] }, true),
  i: () => toggle("inverted"),
  r: () => state.sandwich || state.ordered || toggle("reversed"),
  t: () => state.sandwich || !timed.nodes.length || toggle("ordered"),
  s: () => filter("sandwich"),
  f: () => filter("focus"),
  h: () => filter("hide"),
  c: () => go({ colour: COLOURINGS[(COLOURINGS.indexOf(state.colour) + 1) % COLOURINGS.length] }),
  d: () => go({ theme: themeNow() === "dark" ? "light" : "dark" }),
  m: () => compared && toggle("normalise"),
  w: () => compared && go({ width: state.width === "after" ? "before" : "after" }),
  "?": () => element("help").showModal(),
  Escape: undo,
  Enter: () => selected && zoom(selected.pane, selected.node),
  Backspace: () => {
    const which = selected ? selected.pane : 0;
    zoom(which, Math.max(0, panes[which].tree.parent[panes[which].zoom]));
  },
  ArrowUp: () => walk("ArrowUp"),
  ArrowDown: () => walk("ArrowDown"),
  ArrowLeft: () => walk("ArrowLeft"),
  ArrowRight: () => walk("ArrowRight"),
};

addEventListener("keydown", (event) => {
  const typing = event.target === element("search");
  if (element("help").open) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "f" && !typing) {
    // The browser's search would find nothing on a canvas.
    actions["/"]();
    event.preventDefault();
  }
  if (event.altKey || event.metaKey || event.ctrlKey) return;
  if (typing) {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      go({ search: "" });
      scroll.focus();
    } else return;
  } else if (event.target.tagName === "BUTTON" && (event.key === "Enter" || event.key === " ")) {
    return;
  } else if (Object.hasOwn(actions, event.key)) {
    actions[event.key]();
  } else return;
  event.preventDefault();
});

element("searching").addEventListener("submit", (event) => event.preventDefault());
element("search").addEventListener("input", (event) => go({ search: event.target.value }));
element("previous").addEventListener("click", () => step(-1));
element("next").addEventListener("click", () => step(1));
const buttons = { reset: "0", inverted: "i", reversed: "r", ordered: "t", colour: "c", normalise: "m", width: "w", theme: "d", asking: "?", sandwich: "s", focus: "f", hide: "h" };
for (const [id, key] of Object.entries(buttons)) element(id).addEventListener("click", () => actions[key]());

scroll.addEventListener("click", (event) => {
  const what = nodeAt(event.clientX, event.clientY);
  if (!what) return;
  selected = what;
  zoom(what.pane, what.node);
});

const tip = element("tip");
let pointed = "";
scroll.addEventListener("pointermove", (event) => {
  const what = event.pointerType === "touch" ? null : nodeAt(event.clientX, event.clientY);
  tip.hidden = !what;
  scroll.style.cursor = what ? "pointer" : "";
  if (!what) return;
  const [name, ...rest] = describe(what);
  const text = [name.length > 300 ? name.slice(0, 299) + "…" : name, ...rest].join("\n");
  if (text !== pointed) tip.textContent = pointed = text;
  const { width, height } = tip.getBoundingClientRect();
  const x = Math.max(8, Math.min(event.clientX + 12, innerWidth - width - 8));
  const y = event.clientY + 16 + height < innerHeight ? event.clientY + 16 : Math.max(8, event.clientY - height - 10);
  tip.style.left = `${x}px`;
  tip.style.top = `${y}px`;
});
scroll.addEventListener("pointerleave", () => (tip.hidden = true));
scroll.addEventListener("scroll", () => {
  tip.hidden = true;
  draw();
});
new ResizeObserver(draw).observe(scroll);
systemDark.addEventListener("change", () => show(false));
