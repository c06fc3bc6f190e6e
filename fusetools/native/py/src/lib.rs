//! The thin Python binding, `fusetools._core`. Its types and docstrings are in `fusetools/_core.pyi`.

use std::path::{Path, PathBuf};

use fusetools_core::elf;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    _core,
    CoreError,
    PyException,
    "(what, why): what could not be done and why, a line each."
);

fn elf_error(error: elf::Error) -> PyErr {
    CoreError::new_err((error.what, error.why))
}

#[pyfunction]
#[pyo3(signature = (path, debug_path = None))]
fn elf_functions(
    py: Python<'_>,
    path: PathBuf,
    debug_path: Option<PathBuf>,
) -> PyResult<Vec<(String, u64, u64, u64)>> {
    let found = py
        .detach(|| elf::functions(&path, debug_path.as_deref()))
        .map_err(elf_error)?;
    Ok(found
        .into_iter()
        .map(|f| (f.name, f.address, f.size, f.offset))
        .collect())
}

#[pyfunction]
fn elf_build_id(path: PathBuf) -> PyResult<Option<String>> {
    elf::build_id(Path::new(&path)).map_err(elf_error)
}

#[pyfunction]
fn demangle(name: &str) -> String {
    elf::demangle(name)
}

/// The empty function that a recording puts a uprobe pair on: what is measured of it is the probes' own cost.
#[no_mangle]
#[inline(never)]
pub extern "C" fn fusetools_calibrate() {
    std::hint::black_box(());
}

#[pyfunction]
fn calibrate(py: Python<'_>, n: u64) -> u64 {
    // Called through a pointer that the compiler cannot see through, so that the exported function itself runs.
    let function: extern "C" fn() = std::hint::black_box(fusetools_calibrate);
    py.detach(|| {
        let start = std::time::Instant::now();
        for _ in 0..n {
            function();
        }
        start.elapsed().as_nanos() as u64
    })
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("CoreError", module.py().get_type::<CoreError>())?;
    module.add_function(wrap_pyfunction!(elf_functions, module)?)?;
    module.add_function(wrap_pyfunction!(elf_build_id, module)?)?;
    module.add_function(wrap_pyfunction!(demangle, module)?)?;
    module.add_function(wrap_pyfunction!(calibrate, module)?)?;
    Ok(())
}
