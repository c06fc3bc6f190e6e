// ---- State: what is shown, stored in the address ---------------------------------------------------------------------

const FRESH = {
  search: "",
  zoom: [0, 0],               // a node of each pane
  inverted: data.inverted,
  reversed: data.reversed,
  ordered: false,             // in the order of time
  sandwich: "",               // a frame
  focus: [],                  // frames
  hide: [],
  colour: compared ? "difference" : data.kinds.length ? "kind" : "name",
  normalise: data.normalise,
  width: "after",
  theme: "",                  // "": the system's
};
const COLOURINGS = [...(compared ? ["difference"] : []), ...(data.kinds.length ? ["kind"] : []), "name"];

let state = { ...FRESH };

function toHash(s) {
  const query = new URLSearchParams();
  if (s.search) query.set("search", s.search);
  for (const frame of s.focus) query.append("focus", frame);
  for (const frame of s.hide) query.append("hide", frame);
  if (s.sandwich) query.set("sandwich", s.sandwich);
  for (const key of ["inverted", "reversed", "ordered", "normalise"]) if (s[key] !== FRESH[key]) query.set(key, s[key] ? "1" : "0");
  for (const key of ["colour", "width", "theme"]) if (s[key] !== FRESH[key]) query.set(key, s[key]);
  if (s.zoom[0] || s.zoom[1]) query.set("zoom", s.zoom[1] ? s.zoom.join(" ") : String(s.zoom[0]));
  return query.toString();
}

function fromHash(hash) {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  const s = { ...FRESH };
  const among = (key, all) => (all.includes(query.get(key)) ? query.get(key) : FRESH[key]);
  s.search = query.get("search") || "";
  s.focus = query.getAll("focus");
  s.hide = query.getAll("hide");
  s.sandwich = query.get("sandwich") || "";
  for (const key of ["inverted", "reversed", "ordered", "normalise"]) if (query.has(key)) s[key] = query.get(key) === "1";
  s.ordered &&= timed.nodes.length > 0;
  s.colour = among("colour", COLOURINGS);
  s.width = compared ? among("width", ["before", "after"]) : "after";
  s.theme = among("theme", ["dark", "light"]);
  const zoom = (query.get("zoom") || "0").split(" ").map(Number);
  s.zoom = [0, 1].map((i) => (Number.isInteger(zoom[i]) && zoom[i] > 0 ? zoom[i] : 0));
  return s;
}

let written = null;           // the last hash that we wrote

/** Changes the state; a separate step in the browser's history if `step`. */
function go(changes, step = false) {
  state = { ...state, ...changes };
  written = "#" + toHash(state);
  if (step) location.hash = written;
  else location.replace(written);
  show();
}

addEventListener("hashchange", () => {
  if (location.hash === written || (location.hash === "" && written === "#")) return;
  written = location.hash;
  state = fromHash(location.hash);
  show();
});
