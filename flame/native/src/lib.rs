//! `flame._inferno`: folded stacks to SVG by the inferno crate. The options and their checks are in `flame/svg.py`.

use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{from_lines, Direction, Options, Palette};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// An SVG flame graph of `text`: lines of `frame;frame weight`, or of `frame;frame before after`, sorted by frames.
///
/// `colours` are (frame, (red, green, blue)) for the frames that the palette is not to colour, the root's name is empty. `min_width` is in
/// per cent of the whole, `width` in pixels (0: as wide as the window).
///
/// Raises ValueError for a palette that is unknown and for text without any stack.
#[pyfunction]
#[pyo3(signature = (text, *, title, subtitle, count_name, palette, inverted, min_width, width, colours))]
#[allow(clippy::too_many_arguments)]
fn svg(
    py: Python<'_>,
    text: &str,
    title: String,
    subtitle: Option<String>,
    count_name: String,
    palette: &str,
    inverted: bool,
    min_width: f64,
    width: usize,
    colours: Vec<(String, (u8, u8, u8))>,
) -> PyResult<String> {
    let mut map = PaletteMap::default();
    for (frame, (r, g, b)) in colours {
        map.insert(frame, Color { r, g, b });
    }
    let mut options = Options::default();
    options.title = title;
    options.subtitle = subtitle;
    options.count_name = count_name;
    options.colors = palette
        .parse::<Palette>()
        .map_err(|_| PyValueError::new_err(format!("no palette {palette}")))?;
    options.deterministic = true;
    options.palette_map = Some(&mut map);
    options.direction = if inverted {
        Direction::Inverted
    } else {
        Direction::Straight
    };
    options.min_width = min_width;
    options.image_width = (width > 0).then_some(width);
    // As a chart: inferno would insist on an order by lines, that of a chart is its reader's, from the last on.
    options.flame_chart = true;
    let out = py.detach(|| {
        let mut out = Vec::new();
        from_lines(&mut options, text.lines().rev(), &mut out).map(|()| out)
    });
    let out = out.map_err(|error| PyValueError::new_err(error.to_string()))?;
    String::from_utf8(out).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The names of the palettes.
#[pyfunction]
fn palettes() -> Vec<&'static str> {
    Palette::VARIANTS.to_vec()
}

#[pymodule]
fn _inferno(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(svg, m)?)?;
    m.add_function(wrap_pyfunction!(palettes, m)?)
}
