//! Reading files.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use cap_std::fs::{OpenOptions, OpenOptionsExt as _};
use rustix::fs::{OFlags, fstat};

use super::error::FileError;
use super::roots::{ResolvedPath, Workspace};
use super::stat::{FileStat, Owner};
use super::text::LineRange;

/// An open regular file. It stays the same file when another one replaces it under its name.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    pub stat: FileStat,
}

/// A file with its path after the resolution of all links.
#[derive(Debug)]
pub struct RealFile {
    pub file: OpenFile,
    pub path: PathBuf,
}

impl OpenFile {
    pub(super) fn new(file: File, stat: FileStat) -> Self {
        Self { file, stat }
    }

    /// Reads up to `max` bytes at an offset. Returns fewer only at the end of the file.
    pub fn read_at(&self, offset: u64, max: usize) -> Result<Vec<u8>, FileError> {
        let mut bytes = vec![0; max];
        let mut filled = 0;
        while filled < max {
            let rest = &mut bytes[filled..];
            match self.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Reads the whole file, if it has at most `max` bytes.
    pub fn read(&self, max: u64) -> Result<Vec<u8>, FileError> {
        let expected = usize::try_from(self.stat.size.min(max)).unwrap_or_default();
        let mut bytes = Vec::with_capacity(expected);
        let mut file = (&self.file).take(max.saturating_add(1));
        file.read_to_end(&mut bytes)?;
        if bytes.len() as u64 > max {
            return Err(FileError::TooLarge(max));
        }
        Ok(bytes)
    }
}

impl Workspace {
    pub fn open_file(&self, path: &str) -> Result<OpenFile, FileError> {
        open(&self.resolve(path)?)
    }

    pub fn open_real(&self, path: &str) -> Result<RealFile, FileError> {
        let resolved = self.resolve(path)?;
        let real = ResolvedPath {
            root: resolved.root,
            path: resolved.real()?,
        };
        Ok(RealFile {
            file: open(&real)?,
            path: real.root.path.join(&real.path),
        })
    }

    /// Reads lines of a text file of at most `max` bytes. The path must be absolute, as in ACP.
    pub fn read_text(&self, path: &str, window: LineRange, max: u64) -> Result<String, FileError> {
        let text = String::from_utf8(open(&self.resolve_absolute(path)?)?.read(max)?);
        let text = text.map_err(|_| FileError::NotText)?;
        Ok(if window == LineRange::default() {
            text
        } else {
            window.slice(&text).to_owned()
        })
    }
}

fn open(resolved: &ResolvedPath<'_>) -> Result<OpenFile, FileError> {
    // A FIFO without a writer must not block, and a terminal must not become the controlling terminal.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = resolved.root.dir.open_with(&resolved.path, &options)?;
    let file = file.into_std();
    let stat = fstat(&file)?;
    let owner_permits = Owner::of(&resolved.root.dir)?.permits(&stat);
    let seen = FileStat::from(stat).require_regular()?;
    if !owner_permits {
        return Err(FileError::PermissionDenied);
    }
    Ok(OpenFile { file, stat: seen })
}
