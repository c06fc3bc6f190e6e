// ---- Colours ---------------------------------------------------------------------------------------------------------

const THEMES = {
  light: { paper: [255, 255, 255], ink: "#101215", many: "#c9ccd3", root: [222, 224, 229], dim: 1, select: "#0b0c0e" },
  dark: { paper: [21, 23, 27], ink: "#e8eaed", many: "#4b505a", root: [62, 67, 76], dim: 0.78, select: "#ffffff" },
};
const MATCH = [230, 0, 230];
const MORE = [226, 74, 58];
const LESS = [66, 116, 226];
const NO_KIND = [205, 205, 205];

const css = (rgb) => `rgb(${rgb.map(Math.round).join(",")})`;
const mix = (a, b, share) => a.map((value, i) => value + (b[i] - value) * share);

/** Black or white, whichever is more readable on a colour (WCAG's relative luminance). */
function inkOn(rgb) {
  const [r, g, b] = rgb.map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

function hash(text) {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  return (value ^ (value >>> 15)) >>> 0;
}

const rgbOf = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

const palettes = new Map();

/** The colours of frames already drawn, for a theme and a colouring. */
function palette(theme, colouring) {
  const key = `${theme} ${colouring}`;
  if (!palettes.has(key)) palettes.set(key, []);
  return palettes.get(key);
}

/** A frame's [fill, ink, faded fill, faded ink]. */
function colourOf(frame, theme, colouring) {
  const { dim, paper, root } = THEMES[theme];
  if (frame === ALL) return paint(root, paper);
  const seed = hash(nameOf(frame));
  const kind = data.kind[frame] ?? -1;
  let rgb = [225 + (seed % 30), 95 + ((seed >>> 5) % 125), 50 + ((seed >>> 12) % 40)];
  if (colouring === "kind") {
    const shade = 0.92 + (seed % 17) / 100;
    rgb = kind < 0 ? NO_KIND : rgbOf(data.kinds[kind].colour).map((v) => Math.min(255, v * shade));
  }
  return paint(rgb.map((v) => v * dim), paper);
}

const paint = (rgb, paper) => {
  const faded = mix(rgb, paper, 0.72);
  return [css(rgb), inkOn(rgb), css(faded), inkOn(faded)];
};

/** Blue to red in 81 steps: how much less or more than before. */
const differences = new Map();
function difference(theme, tree, node) {
  if (!differences.has(theme)) {
    const { paper, dim } = THEMES[theme];
    const even = theme === "dark" ? [74, 78, 87] : [232, 233, 236];
    const shades = [];
    for (let i = -40; i <= 40; i++) {
      const rgb = mix(even, (i < 0 ? LESS : MORE).map((v) => v * (0.5 + dim / 2)), Math.abs(i) / 40);
      shades.push(paint(rgb, paper));
    }
    differences.set(theme, shades);
  }
  return differences.get(theme)[40 + Math.round(40 * change(tree, node))];
}

/** -1 (gone) to 1 (new). */
function change(tree, node) {
  const before = tree.allBefore[node] * scale;
  const after = tree.allAfter[node];
  const most = Math.max(before, after);
  return most > 0 ? (after - before) / most : 0;
}

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const themeNow = () => state.theme || (systemDark.matches ? "dark" : "light");
