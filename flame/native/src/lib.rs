//! `flame._inferno`: folded stacks to SVG by the inferno crate. The options and their checks are in `flame/svg.py`.

mod graph;

use inferno::flamegraph::Palette;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// An SVG flame graph of `text`: lines of `frame;frame weight`, or of `frame;frame before after`, sorted by frames.
///
/// `colours` are (frame, (red, green, blue)) for frames that the palette does not colour; the root's name is empty. `min_width` is in
/// per cent of the whole, `width` in pixels (0: as wide as the window).
///
/// Raises ValueError for an unknown palette and for text without any stack.
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
    let look = graph::Look {
        title,
        subtitle,
        count_name,
        inverted,
        min_width,
        width,
        colours,
    };
    py.detach(|| graph::svg(text, palette, look))
        .map_err(PyValueError::new_err)
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
