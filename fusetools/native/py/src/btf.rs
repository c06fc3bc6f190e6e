//! Members of structures and functions, from the kernel's BTF.

use std::collections::HashMap;

use fusetools_core::format::btf::{Btf, Functions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// (offset in bytes, first bit, bits) of a member.
type Place = (u32, u32, u32);

#[pyfunction]
#[pyo3(signature = (vmlinux, module, members, structures))]
pub fn btf(
    py: Python<'_>,
    vmlinux: &[u8],
    module: Option<&[u8]>,
    members: Vec<String>,
    structures: Vec<String>,
) -> PyResult<(HashMap<String, Place>, Functions)> {
    py.detach(|| {
        let base = Btf::new(vmlinux, None)?;
        let own = match module {
            Some(data) => &Btf::new(data, Some(&base))?,
            None => &base,
        };
        let paths = members.iter().filter_map(|member| member.split_once('.'));
        let paths: Vec<_> = paths.collect();
        let numbers = own.structures(
            &paths
                .iter()
                .map(|(structure, _)| *structure)
                .collect::<Vec<_>>(),
        );
        let found = paths.into_iter().filter_map(|(structure, path)| {
            let it = own.member(*numbers.get(structure)?, path)?;
            Some((format!("{structure}.{path}"), (it.offset, it.bit, it.bits)))
        });
        let names: Vec<_> = structures.iter().map(String::as_str).collect();
        Ok((found.collect(), own.functions(&names)))
    })
    .map_err(|why: &str| PyValueError::new_err(why))
}
