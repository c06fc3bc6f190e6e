// ---- The page around the graph ---------------------------------------------------------------------------------------

const element = (id) => document.getElementById(id);

const NANOSECONDS = { ns: 1, us: 1e3, ms: 1e6, s: 1e9 };

/** A weight with its unit. */
function amount(weight) {
  const nanoseconds = NANOSECONDS[data.unit];
  if (!nanoseconds) {
    const count = weight.toLocaleString("en", { maximumFractionDigits: 1 });
    return `${count} ${data.unit}`;
  }
  const value = weight * nanoseconds;
  const [unit, by] = Object.entries(NANOSECONDS).findLast(([, by]) => Math.abs(value) >= by) || ["ns", 1];
  const shown = value / by;
  const digits = Math.abs(shown) >= 100 || Number.isInteger(shown) ? 0 : Math.abs(shown) >= 10 ? 1 : 2;
  return `${shown.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits })} ${unit}`;
}

const percent = (part, of) => (of > 0 ? `${((100 * part) / of).toFixed(2)} %` : "0 %");

/** A node's description, in lines. */
function describe({ pane, node }) {
  const { tree, zoom } = panes[pane];
  const frame = tree.frame[node];
  const kind = data.kinds[data.kind[frame] ?? -1];
  const lines = [nameOf(frame) + (kind ? ` (${kind.name})` : "")];
  let line = amount(weightOf(tree, node));
  if (tree.w[node] !== whole) line += `, ${percent(tree.w[node], whole)} of all`;
  if (tree.w[zoom] !== whole && tree.w[node] < tree.w[zoom]) line += `, ${percent(tree.w[node], tree.w[zoom])} of what is shown`;
  lines.push(line);
  const own = state.width === "before" ? tree.before[node] * scale : tree.after[node];
  if (own > 0 && tree.end[node] > node + 1 && pane === 0) lines.push(`itself ${amount(own)}, ${percent(state.width === "before" ? tree.before[node] : own, whole)}`);
  if (compared) {
    const before = tree.allBefore[node] * scale;
    const after = tree.allAfter[node];
    const times = before > 0 && after > 0 ? ` (× ${(after / before).toFixed(2)})` : before > 0 ? " (gone)" : " (new)";
    const sign = after > before ? "+" : after < before ? "-" : "±";
    lines.push(`before ${amount(before)}, after ${amount(after)}: ${sign}${amount(Math.abs(after - before))}${times}`);
  }
  return lines;
}

const weightOf = (tree, node) => (state.width === "before" ? tree.allBefore[node] * scale : tree.w[node]);

/** Updates the page to the state. */
function show(animate = true) {
  const anew = JSON.stringify([state.focus, state.hide, state.reversed, state.ordered, state.sandwich, state.inverted]);
  const changed = anew !== show.last;
  show.last = anew;
  build();
  find();
  const theme = themeNow();
  document.documentElement.classList.toggle("dark", theme === "dark");
  spacer.style.height = `${rows * ROW}px`;
  for (const key of ["inverted", "reversed", "ordered", "normalise"]) element(key).setAttribute("aria-pressed", state[key]);
  element("reversed").disabled = state.sandwich !== "" || state.ordered;
  element("ordered").disabled = state.sandwich !== "";
  element("ordered").hidden = !timed.nodes.length;
  element("normalise").hidden = element("width").hidden = !compared;
  element("width").textContent = `Widths: ${state.width}`;
  element("colour").hidden = COLOURINGS.length < 2;
  element("colour").textContent = `Colour: ${state.colour}`;
  element("theme").textContent = theme === "dark" ? "Light" : "Dark";
  if (element("search").value !== state.search) element("search").value = state.search;
  showMatches();
  showFilters();
  showLegend(theme);
  showSelected();
  if (changed) {
    // Scroll to the new root; a sandwich's root to the middle.
    const root = panes[0].at * ROW;
    scroll.scrollTop = panes.length > 1 ? root - scroll.clientHeight / 2 : root;
  }
  move(animate && !changed);
}

function showMatches() {
  const output = element("found");
  output.classList.toggle("wrong", results.wrong !== "");
  if (results.wrong) output.textContent = results.wrong;
  else if (!state.search) output.textContent = "";
  else {
    const { length } = results.list;
    const at = results.at >= 0 ? `${(results.at + 1).toLocaleString("en")} of ` : "";
    const matches = `${at}${length.toLocaleString("en")} match${length === 1 ? "" : "es"}`;
    output.textContent = length ? `${matches}, ${percent(results.share, whole)}` : "no match";
  }
  element("previous").disabled = element("next").disabled = !results.list.length;
}

function showFilters() {
  const list = element("filters");
  const chip = (text, label, changes) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${text} ×`;
    button.title = label;
    button.addEventListener("click", () => {
      go({ zoom: [0, 0], ...changes }, true);
      scroll.focus();
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  };
  const without = (all, gone) => all.filter((frame) => frame !== gone);
  list.replaceChildren(
    ...(state.sandwich ? [chip(`sandwich: ${bare(state.sandwich)}`, "Back to the whole graph", { sandwich: "" })] : []),
    ...state.focus.map((frame) => chip(`focus: ${bare(frame)}`, "Show all stacks", { focus: without(state.focus, frame) })),
    ...state.hide.map((frame) => chip(`hidden: ${bare(frame)}`, "Show it again", { hide: without(state.hide, frame) })),
  );
  const told = (text) => {
    const item = document.createElement("li");
    item.textContent = text;
    list.append(item);
  };
  const all = base.allAfter[0];
  const inTime = timed.weights.reduce((sum, weight) => sum + weight, 0);
  if (state.ordered && !state.sandwich) {
    const part = inTime < 0.9995 * all ? `; the first ${percent(inTime, all)} only: there is too much` : "";
    told(`time order: the stacks of each thread one after the other, threads by their first${part}`);
  }
  const cut = Math.min(...panes.map((pane) => pane.tree.cut ?? Infinity));
  if (cut < Infinity) told(`stacks are cut after ${cut} frames: there are too many`);
}

function showLegend(theme) {
  const entry = (colour, text) => {
    const item = document.createElement("li");
    const swatch = document.createElement("i");
    swatch.style.background = colour;
    item.append(swatch, text);
    return item;
  };
  const { dim } = THEMES[theme];
  const dimmed = (rgb) => css(rgb.map((v) => v * dim));
  let entries = [];
  if (state.colour === "kind") {
    const drawn = data.kinds.filter((_, kind) => data.kind.includes(kind));
    entries = drawn.map(({ name, colour }) => entry(dimmed(rgbOf(colour)), name));
    if (data.kind.includes(-1)) entries.push(entry(dimmed(NO_KIND), "other"));
  }
  if (state.colour === "difference") {
    const how = state.normalise ? " (shares compared)" : "";
    entries = [entry(css(MORE), `+ more than before${how}`), entry(css(LESS), `- less than before${how}`)];
  }
  element("legend").replaceChildren(...entries);
}

function showSelected() {
  const { tree, zoom } = panes[0];
  const lines = describe(selected || { pane: 0, node: zoom });
  element("detail").textContent = lines.join(" · ");
  const acts = selected && panes[selected.pane].tree.frame[selected.node] !== ALL;
  element("acts").hidden = !acts;
  graph.setAttribute("aria-label", `${data.title}: ${tree.n - 1} frames, ${amount(weightOf(tree, 0))}`);
}
