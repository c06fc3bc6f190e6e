//! Files of the recorded programs, if this machine has them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fmt, fs, io};

use rustc_hash::FxHashMap;

use crate::input;
use crate::programs::elf::{self, hex};
use crate::programs::spaces::MappedFile;

type Open = dyn Fn(&Path) -> io::Result<fs::File> + Send + Sync;

/// Function that opens a file for reading which this process itself may not open.
#[derive(Clone)]
pub struct Opener(pub Arc<Open>);

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}

/// Places of programs' files on this machine.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Root of a recording's paths; "" is this machine's.
    pub root: PathBuf,
    /// Files with another path here: of a daemon in another mount namespace, or deleted.
    pub places: FxHashMap<MappedFile, PathBuf>,
    /// Mount points below which nothing is opened, because their file system does not answer, and [`VDSO`] if the
    /// recording is of another machine.
    pub avoid: Vec<PathBuf>,
    /// Function that opens files. None: this process opens them itself.
    pub opener: Option<Opener>,
}

/// Name of the mapping of the vDSO, the kernel's part of each program.
pub const VDSO: &str = "[vdso]";

/// Bytes of a file, which are read, not mapped: a file that shrinks or whose file system fails is an error, not a
/// signal.
pub type Image = Vec<u8>;

impl Files {
    /// Read the file, if it is here and its build id is that of the mapping. The vDSO is copied from this process.
    pub fn open(&self, file: &MappedFile) -> Option<Image> {
        if file.path == VDSO && self.root.as_os_str().is_empty() {
            return own_vdso().filter(|_| !self.avoid.iter().any(|name| name == Path::new(VDSO)));
        }
        let image = self.image(&self.place(file)?)?;
        let known = elf::build_id_in(&image).ok()?;
        let wanted = hex(&file.build_id);
        let same = wanted.is_empty() || known.is_none_or(|known| known == wanted);
        same.then_some(image)
    }

    /// Read a debug file, if it is here and has this build id, or if `build_id` is empty.
    pub fn open_debug(&self, place: &Path, build_id: &str) -> Option<Image> {
        let image = self.image(place)?;
        let known = elf::build_id_in(&image).ok()?;
        (build_id.is_empty() || known.as_deref() == Some(build_id)).then_some(image)
    }

    /// Return the file's place. None for names that are no files: "[vdso]", "//anon".
    pub fn place(&self, file: &MappedFile) -> Option<PathBuf> {
        if let Some(place) = self.places.get(file) {
            return Some(place.clone());
        }
        let path = file.path.strip_prefix('/')?;
        (!path.starts_with('/')).then(|| self.below(path))
    }

    fn below(&self, path: &str) -> PathBuf {
        match self.root.as_os_str().is_empty() {
            true => Path::new("/").join(path),
            false => self.root.join(path),
        }
    }

    /// Return the roots below which the file's debug file may lie: this one, and that of the process in `place`.
    pub fn roots(&self, place: &Path) -> Vec<PathBuf> {
        let mut roots = vec![self.below("")];
        let parts: Vec<_> = place.iter().take(3).collect();
        if let [_, proc, pid] = parts[..] {
            let pid = pid.to_string_lossy();
            if proc == "proc" && pid.bytes().all(|byte| byte.is_ascii_digit()) {
                roots.push(format!("/proc/{pid}/root").into());
            }
        }
        roots
    }

    pub(crate) fn image(&self, place: &Path) -> Option<Image> {
        if self.avoid.iter().any(|mount| place.starts_with(mount)) {
            return None;
        }
        match &self.opener {
            Some(Opener(open)) => input::read_file(&open(place).ok()?, elf::MOST).ok(),
            None => input::read(place, elf::MOST).ok(),
        }
    }
}

/// Read the vDSO now: a process that has dropped its privileges may not read its own memory.
pub fn keep_vdso() {
    own_vdso();
}

/// Return this process's vDSO, the kernel's mapping for system calls without a switch to the kernel.
fn own_vdso() -> Option<Vec<u8>> {
    static VDSO: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    VDSO.get_or_init(read_vdso).clone()
}

fn read_vdso() -> Option<Vec<u8>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let len = u64::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|len| *len <= 1 << 20)?];
    let memory = fs::File::open("/proc/self/mem").ok()?;
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, start).ok()?;
    Some(bytes)
}
