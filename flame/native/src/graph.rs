//! Folded stacks to SVG by the inferno crate; no Python in it.

use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{from_lines, Direction, Options, Palette};

/// How a graph looks.
pub struct Look {
    pub title: String,
    pub subtitle: Option<String>,
    pub count_name: String,
    pub inverted: bool,
    /// Per cent of the total.
    pub min_width: f64,
    /// Pixels; 0: as wide as the window.
    pub width: usize,
    /// Frames that the palette does not colour; the root's name is empty.
    pub colours: Vec<(String, (u8, u8, u8))>,
}

/// Error: the palette is unknown, or the text holds no stack.
pub fn svg(text: &str, palette: &str, look: Look) -> Result<String, String> {
    let mut map = PaletteMap::default();
    for (frame, (r, g, b)) in look.colours {
        map.insert(frame, Color { r, g, b });
    }
    let mut options = Options::default();
    options.title = look.title;
    options.subtitle = look.subtitle;
    options.count_name = look.count_name;
    options.colors = palette
        .parse::<Palette>()
        .map_err(|_| format!("no palette {palette}"))?;
    options.deterministic = true;
    options.palette_map = Some(&mut map);
    options.direction = if look.inverted {
        Direction::Inverted
    } else {
        Direction::Straight
    };
    options.min_width = look.min_width;
    options.image_width = (look.width > 0).then_some(look.width);
    // As a chart: otherwise inferno requires lines in its own order; a chart is drawn from the last line on.
    options.flame_chart = true;
    let mut out = Vec::new();
    from_lines(&mut options, text.lines().rev(), &mut out).map_err(|error| error.to_string())?;
    String::from_utf8(out).map_err(|error| error.to_string())
}
