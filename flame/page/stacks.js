// ---- The stacks -------------------------------------------------------------------------------------------------

const data = JSON.parse(document.getElementById("data").textContent);

/** The numbers that html.py wrote as base64, in an array of the given type. */
function numbers(base64, Type) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Type(bytes.buffer);
}

const ALL = data.frames.length;             // the frame of the root
const frames = [...data.frames, "all"];
const bare = (name) => name.replace(/_\[[kijw]\]$/, "");
const nameOf = (frame) => bare(frames[frame]);
const compared = data.before !== "";

// A tree is {n, frame, parent, before, after}: for each node, in depth-first order, its frame, its caller (-1: none)
// and the weight of the stacks that end in it. Node 0 is the root. `lay` adds the rest.

function read() {
  const frame = numbers(data.frame, Int32Array);
  const parent = numbers(data.parent, Int32Array);
  const after = numbers(data.after, Float64Array);
  const before = compared ? numbers(data.before, Float64Array) : new Float64Array(after.length);
  const n = frame.length + 1;
  const tree = empty(n);
  tree.frame[0] = ALL;
  tree.parent[0] = -1;
  tree.frame.set(frame, 1);
  tree.after.set(after, 1);
  tree.before.set(before, 1);
  for (let i = 1; i < n; i++) tree.parent[i] = parent[i - 1] + 1;
  return sum(tree);
}

function empty(n) {
  return {
    n,
    frame: new Int32Array(n),
    parent: new Int32Array(n),
    before: new Float64Array(n),
    after: new Float64Array(n),
  };
}

/** Adds allBefore and allAfter (a node with its descendants), depth, end (the node after its descendants), rows. */
function sum(tree) {
  const { n, parent } = tree;
  const allBefore = (tree.allBefore = tree.before.slice());
  const allAfter = (tree.allAfter = tree.after.slice());
  const depth = (tree.depth = new Int32Array(n));
  const end = (tree.end = new Int32Array(n));
  tree.rows = 1;
  for (let i = 1; i < n; i++) {
    depth[i] = depth[parent[i]] + 1;
    if (depth[i] >= tree.rows) tree.rows = depth[i] + 1;
  }
  for (let i = n - 1; i >= 0; i--) {
    if (end[i] === 0) end[i] = i + 1;
    const p = parent[i];
    if (p < 0) continue;
    allBefore[p] += allBefore[i];
    allAfter[p] += allAfter[i];
    if (end[p] < end[i]) end[p] = end[i];
  }
  return tree;
}

/** Adds x and w, each node's position: from 0 to the root's w, in units of weight. */
function lay(tree) {
  const w = (tree.w = state.width === "before" ? tree.allBefore : tree.allAfter);
  if (tree.at) {
    tree.x = tree.at;
    return tree;
  }
  const x = (tree.x = new Float64Array(tree.n));
  const next = new Float64Array(tree.n);
  for (let i = 1; i < tree.n; i++) {
    const p = tree.parent[i];
    x[i] = next[p];
    next[p] += w[i];
    next[i] = x[i];
  }
  return tree;
}

let ranks = null;

/** The rank of each frame by name. */
function rank() {
  if (ranks) return ranks;
  const order = frames.map((_, i) => i).sort((a, b) => (frames[a] < frames[b] ? -1 : frames[a] > frames[b] ? 1 : 0));
  ranks = new Int32Array(frames.length);
  order.forEach((frame, place) => (ranks[frame] = place));
  return ranks;
}

/** A tree under construction: stacks are added from its root, equal ones are merged. */
class Growing {
  constructor(root) {
    this.n = 0;
    this.tree = empty(1024);
    this.slots = new Int32Array(4096).fill(-1);
    this.create(-1, root);
  }

  create(parent, frame) {
    const { tree, n } = this;
    if (n === tree.n) {
      const bigger = empty(n * 2);
      for (const name of ["frame", "parent", "before", "after"]) bigger[name].set(tree[name]);
      this.tree = bigger;
    }
    this.tree.frame[n] = frame;
    this.tree.parent[n] = parent;
    this.n++;
    return n;
  }

  slot(parent, frame) {
    const mask = this.slots.length - 1;
    let hash = Math.imul(parent, 0x9e3779b1) ^ Math.imul(frame, 0x85ebca6b);
    hash = (hash ^ (hash >>> 15)) & mask;
    for (;;) {
      const node = this.slots[hash];
      if (node < 0 || (this.tree.parent[node] === parent && this.tree.frame[node] === frame)) return hash;
      hash = (hash + 1) & mask;
    }
  }

  /** The callee `frame` of a node. */
  callee(parent, frame) {
    const slot = this.slot(parent, frame);
    if (this.slots[slot] >= 0) return this.slots[slot];
    const node = this.create(parent, frame);
    this.slots[slot] = node;
    if (this.n * 2 > this.slots.length) {
      this.slots = new Int32Array(this.slots.length * 2).fill(-1);
      for (let i = 1; i < this.n; i++) this.slots[this.slot(this.tree.parent[i], this.tree.frame[i])] = i;
    }
    return node;
  }

  add(node, before, after) {
    this.tree.before[node] += before;
    this.tree.after[node] += after;
  }

  /** The tree in its final order, callees by name. */
  done() {
    const { tree: from, n } = this;
    const place = rank();
    const count = new Int32Array(frames.length + 1);
    for (let i = 0; i < n; i++) count[place[from.frame[i]] + 1]++;
    for (let i = 0; i < frames.length; i++) count[i + 1] += count[i];
    const byName = new Int32Array(n);
    for (let i = 0; i < n; i++) byName[count[place[from.frame[i]]]++] = i;
    // Lists of callees, filled from the last name to the first.
    const first = new Int32Array(n).fill(-1);
    const sibling = new Int32Array(n).fill(-1);
    for (let k = n - 1; k >= 0; k--) {
      const i = byName[k];
      const p = from.parent[i];
      if (p < 0) continue;
      sibling[i] = first[p];
      first[p] = i;
    }
    const tree = empty(n);
    const moved = new Int32Array(n);
    let at = 0;
    for (let i = 0; i >= 0; ) {
      moved[i] = at;
      tree.frame[at] = from.frame[i];
      tree.parent[at] = i ? moved[from.parent[i]] : -1;
      tree.before[at] = from.before[i];
      tree.after[at] = from.after[i];
      at++;
      if (first[i] >= 0) {
        i = first[i];
      } else {
        while (i > 0 && sibling[i] < 0) i = from.parent[i];
        i = i > 0 ? sibling[i] : -1;
      }
    }
    return sum(tree);
  }
}

/** Only the stacks through a frame. */
function focused(tree, frame) {
  const through = new Uint8Array(tree.n);
  const keep = new Uint8Array(tree.n);
  for (let i = 0; i < tree.n; i++) {
    const p = tree.parent[i];
    through[i] = keep[i] = tree.frame[i] === frame || (p >= 0 && through[p]) ? 1 : 0;
  }
  keep[0] = 1;
  for (let i = tree.n - 1; i > 0; i--) if (keep[i]) keep[tree.parent[i]] = 1;
  const moved = new Int32Array(tree.n);
  let n = 0;
  for (let i = 0; i < tree.n; i++) if (keep[i]) moved[i] = n++;
  const out = empty(n);
  for (let i = 0; i < tree.n; i++) {
    if (!keep[i]) continue;
    const at = moved[i];
    out.frame[at] = tree.frame[i];
    out.parent[at] = i ? moved[tree.parent[i]] : -1;
    out.before[at] = through[i] ? tree.before[i] : 0;
    out.after[at] = through[i] ? tree.after[i] : 0;
  }
  return sum(out);
}

/** The tree without a frame: its callees become callees of its caller. */
function hidden(tree, frame) {
  const out = new Growing(tree.frame[0]);
  const moved = new Int32Array(tree.n);
  out.add(0, tree.before[0], tree.after[0]);
  for (let i = 1; i < tree.n; i++) {
    const caller = moved[tree.parent[i]];
    moved[i] = tree.frame[i] === frame ? caller : out.callee(caller, tree.frame[i]);
    out.add(moved[i], tree.before[i], tree.after[i]);
  }
  return out.done();
}

const timed = { nodes: numbers(data.order, Int32Array), weights: numbers(data.weights, Float64Array) };

/**
 * The stacks in the order of time: only equal frames of neighbours are merged. Stacks without a frame of `focus` are left
 * out, as are the frames of `hide`. Adds `at`: the weight before each node.
 */
function ordered(tree, focus, hide) {
  const out = new Growing(ALL);
  const at = [0];
  const path = [];              // the nodes of the last stack, without the root
  let before = 0;
  for (let k = 0; k < timed.nodes.length; k++) {
    let stack = [];
    for (let i = timed.nodes[k] + 1; i > 0; i = tree.parent[i]) stack.push(tree.frame[i]);
    if (!focus.every((frame) => stack.includes(frame))) continue;
    stack = stack.filter((frame) => !hide.includes(frame)).reverse();
    let same = 0;
    while (same < stack.length && same < path.length && out.tree.frame[path[same]] === stack[same]) same++;
    path.length = same;
    if (out.n + stack.length - same > MOST) break;
    for (const frame of stack.slice(same)) {
      path.push(out.create(path.length ? path[path.length - 1] : 0, frame));
      at.push(before);
    }
    out.add(path.length ? path[path.length - 1] : 0, 0, timed.weights[k]);
    before += timed.weights[k];
  }
  const done = empty(out.n);
  for (const name of ["frame", "parent", "before", "after"]) done[name].set(out.tree[name].subarray(0, out.n));
  done.at = Float64Array.from(at);
  return sum(done);
}

// Trees from the leaves can have far more nodes than the tree itself: beyond this number stacks are cut.
const MOST = 6e6;

/** How many frames of each stack can be reversed without exceeding MOST. */
function affordable(depths) {
  const count = [];
  for (const depth of depths) count[depth] = (count[depth] || 0) + 1;
  let stacks = depths.length;
  let nodes = 0;
  for (let depth = 0; depth < count.length; depth++) {
    if (nodes + stacks > MOST) return depth;
    nodes += stacks;
    stacks -= count[depth] || 0;
  }
  return Infinity;
}

/** The tree from some nodes to their callers, merged from the nodes; `before` and `after` are their weights. */
function turned(tree, root, nodes, before, after, itself) {
  const most = affordable(nodes.map((i) => tree.depth[i]));
  const out = new Growing(root);
  for (const node of nodes) {
    let at = 0;
    let left = most;
    for (let i = itself ? node : tree.parent[node]; i > 0 && left-- > 0; i = tree.parent[i]) at = out.callee(at, tree.frame[i]);
    out.add(at, before[node], after[node]);
  }
  const done = out.done();
  done.cut = most;
  return done;
}

function reversed(tree) {
  const leaves = [];
  for (let i = 1; i < tree.n; i++) if (tree.before[i] || tree.after[i]) leaves.push(i);
  return turned(tree, ALL, leaves, tree.before, tree.after, true);
}

/** The nodes of a frame that are below no other node of it: their sum counts nothing twice. */
function outermost(tree, frame) {
  const nodes = [];
  for (let i = 0; i < tree.n; ) {
    if (tree.frame[i] === frame) {
      nodes.push(i);
      i = tree.end[i];
    } else i++;
  }
  return nodes;
}

function callers(tree, frame) {
  return turned(tree, frame, outermost(tree, frame), tree.allBefore, tree.allAfter, false);
}

function callees(tree, frame) {
  const out = new Growing(frame);
  const moved = new Int32Array(tree.n);
  for (const top of outermost(tree, frame)) {
    out.add(0, tree.before[top], tree.after[top]);
    moved[top] = 0;
    for (let i = top + 1; i < tree.end[top]; i++) {
      moved[i] = out.callee(moved[tree.parent[i]], tree.frame[i]);
      out.add(moved[i], tree.before[i], tree.after[i]);
    }
  }
  return out.done();
}
