//! Reads files that others may have made: only regular ones, with a size limit, never mapped.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

// asm-generic/fcntl.h. MIPS, SPARC, Alpha and PA-RISC have other values; we have no prebuilt std for them.
const O_NOCTTY: i32 = 0o400;
const O_NONBLOCK: i32 = 0o4000;
const PART: usize = 1 << 20;

/// Return the content of a regular file of at most `most` bytes. "/proc/self/fd/N" is the open file N itself, which
/// this process may no longer be allowed to open.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_file(&open(path)?, most)
}

/// Return the content of an open file, under the same conditions.
pub fn read_file(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let other = |why: String| Err(io::Error::other(why));
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return other("it is not a file".into());
    }
    let mib = most >> 20;
    if metadata.len() > most {
        return other(format!("it is larger than {mib} MiB"));
    }
    let mut bytes = Vec::new();
    // Files in /proc report a size of 0, and a file may grow meanwhile.
    let whole = usize::try_from(metadata.len()).unwrap_or(PART);
    loop {
        let at = bytes.len();
        let left = whole.saturating_sub(at) + 1;
        bytes.resize(at + left.clamp(4096, PART), 0);
        let count = match file.read_at(&mut bytes[at..], at as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                bytes.truncate(at);
                continue;
            }
            result => result?,
        };
        bytes.truncate(at + count);
        if count == 0 {
            bytes.shrink_to_fit();
            return Ok(bytes);
        }
        if bytes.len() as u64 > most {
            return other(format!("it is larger than {mib} MiB"));
        }
    }
}

/// Open a file without waiting for a FIFO's writer, and without acquiring a terminal.
fn open(path: &Path) -> io::Result<File> {
    by_number(path).unwrap_or_else(|| {
        OpenOptions::new()
            .read(true)
            .custom_flags(O_NONBLOCK | O_NOCTTY)
            .open(path)
    })
}

/// Return the open file N itself, if the path is "/proc/self/fd/N".
pub(crate) fn by_number(path: &Path) -> Option<io::Result<File>> {
    let number = path.strip_prefix("/proc/self/fd").ok()?;
    let number = number
        .to_str()?
        .parse()
        .ok()
        .filter(|number| *number >= 0)?;
    // SAFETY: borrowed only for the duplication. A number that is not open makes dup fail.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Some(borrowed.try_clone_to_owned().map(File::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd;

    #[test]
    fn only_regular_files_with_a_limit() {
        let folder = std::env::temp_dir().join(format!("fusetools-input-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x");
        let content: Vec<u8> = (0..3 * PART + 17).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        let long = content.len() as u64;
        assert_eq!(read(&path, long).unwrap(), content);
        assert!(read(&path, long - 1).is_err());
        // The open file itself, whatever its position, and without its name.
        let file = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(read(Path::new(&by_number), long).unwrap(), content);
        assert!(read(Path::new("/proc/self/fd/999"), long).is_err());
        for other in ["/dev/zero", "/dev/tty", "/", "/no/such"] {
            assert!(read(Path::new(other), long).is_err(), "{other}");
        }
        // A file of /proc, which reports a size of 0.
        assert!(!read(Path::new("/proc/version"), long).unwrap().is_empty());
        assert!(read(Path::new("/proc/kallsyms"), 1 << 10).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
