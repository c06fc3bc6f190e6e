//! A read-only file system with the crate `fuser`: shows SOURCE on MOUNT until its standard input
//! ends.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};

const TTL: Duration = Duration::ZERO;

fn kind(of: fs::FileType) -> FileType {
    if of.is_dir() {
        FileType::Directory
    } else if of.is_symlink() {
        FileType::Symlink
    } else if of.is_fifo() {
        FileType::NamedPipe
    } else {
        FileType::RegularFile
    }
}

fn attributes(ino: u64, of: &Metadata) -> FileAttr {
    let time = UNIX_EPOCH + Duration::from_secs(of.mtime() as u64);
    FileAttr {
        ino,
        size: of.size(),
        blocks: of.blocks(),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: kind(of.file_type()),
        perm: of.mode() as u16 & 0o7777,
        nlink: of.nlink() as u32,
        uid: of.uid(),
        gid: of.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Inode numbers are indices of `paths`, from 1; file handles are those of `files`.
struct Shown {
    paths: Vec<PathBuf>,
    numbers: HashMap<PathBuf, u64>,
    files: HashMap<u64, File>,
    opened: u64,
}

impl Shown {
    fn path(&self, ino: u64) -> PathBuf {
        self.paths
            .get(ino as usize - 1)
            .cloned()
            .unwrap_or_default()
    }

    fn number(&mut self, path: PathBuf) -> u64 {
        if let Some(&number) = self.numbers.get(&path) {
            return number;
        }
        self.paths.push(path.clone());
        let number = self.paths.len() as u64;
        self.numbers.insert(path, number);
        number
    }
}

fn code(error: std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Filesystem for Shown {
    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let path = self.path(parent).join(name);
        match fs::symlink_metadata(&path) {
            Ok(of) => reply.entry(&TTL, &attributes(self.number(path), &of), 0),
            Err(error) => reply.error(code(error)),
        }
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        match fs::symlink_metadata(self.path(ino)) {
            Ok(of) => reply.attr(&TTL, &attributes(ino, &of)),
            Err(error) => reply.error(code(error)),
        }
    }

    fn readlink(&mut self, _: &Request<'_>, ino: u64, reply: ReplyData) {
        match fs::read_link(self.path(ino)) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(code(error)),
        }
    }

    fn open(&mut self, _: &Request<'_>, ino: u64, _: i32, reply: ReplyOpen) {
        match File::open(self.path(ino)) {
            Ok(file) => {
                self.opened += 1;
                self.files.insert(self.opened, file);
                reply.opened(self.opened, 0);
            }
            Err(error) => reply.error(code(error)),
        }
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        _: u64,
        fh: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size as usize];
        match self.files[&fh].read_at(&mut data, offset as u64) {
            Ok(size) => reply.data(&data[..size]),
            Err(error) => reply.error(code(error)),
        }
    }

    fn release(
        &mut self,
        _: &Request<'_>,
        _: u64,
        fh: u64,
        _: i32,
        _: Option<u64>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.remove(&fh);
        reply.ok();
    }

    fn readdir(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        mut reply: ReplyDirectory,
    ) {
        let entries = match fs::read_dir(self.path(ino)) {
            Ok(entries) => entries,
            Err(error) => return reply.error(code(error)),
        };
        for (index, entry) in entries.flatten().enumerate().skip(offset as usize) {
            let Ok(of) = entry.file_type() else { continue };
            if reply.add(ino, index as i64 + 1, kind(of), entry.file_name()) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&mut self, _: &Request<'_>, _: u64, reply: ReplyStatfs) {
        reply.statfs(1000, 0, 0, 1000, 0, 4096, 255, 4096);
    }
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let [_, source, mount] = &arguments[..] else {
        eprintln!("Usage: fuserfs SOURCE MOUNT");
        std::process::exit(2);
    };
    // A killed test also ends the input; to exit by the signal would leave the mount behind.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    let mut shown = Shown {
        paths: Vec::new(),
        numbers: HashMap::new(),
        files: HashMap::new(),
        opened: 0,
    };
    shown.number(source.into());
    let options = [MountOption::RO, MountOption::FSName("fuserfs".into())];
    let session = fuser::spawn_mount2(shown, mount, &options)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(session);
    Ok(())
}
