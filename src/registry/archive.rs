//! Unpacks archives. No file of an archive leaves the folder.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

const MAX_FILES: usize = 100_000;
const MAX_BYTES: u64 = 4 << 30;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("could not unpack the archive")]
    Io(#[from] io::Error),
    #[error("could not unpack the archive")]
    Zip(#[from] zip::result::ZipError),
    #[error(
        "the archive has the entry {0:?}, which is outside of its folder or of an unknown type"
    )]
    Entry(String),
    #[error("the archive has more than {MAX_FILES} files or {MAX_BYTES} bytes")]
    TooLarge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    TarGz,
    TarBz2,
    Zip,
    Raw,
}

impl Format {
    pub(super) fn of(name: &str) -> Self {
        let path = name.split(['?', '#']).next().unwrap_or_default();
        let path = path.to_ascii_lowercase();
        let ends = [
            (".tar.gz", Self::TarGz),
            (".tgz", Self::TarGz),
            (".tar.bz2", Self::TarBz2),
            (".tbz2", Self::TarBz2),
            (".zip", Self::Zip),
        ];
        let found = ends.iter().find(|(end, _)| path.ends_with(end));
        found.map_or(Self::Raw, |(_, format)| *format)
    }
}

/// Unpacks an archive into a folder that exists. Blocks.
pub(super) fn unpack(format: Format, archive: &Path, into: &Path) -> Result<(), ArchiveError> {
    let file = File::open(archive)?;
    match format {
        Format::TarGz => unpack_tar(flate2::read::GzDecoder::new(file), into),
        Format::TarBz2 => unpack_tar(bzip2::read::BzDecoder::new(file), into),
        Format::Zip => unpack_zip(file, into),
        Format::Raw => Ok(()),
    }
}

fn unpack_tar(reader: impl Read, into: &Path) -> Result<(), ArchiveError> {
    let mut archive = tar::Archive::new(reader.take(MAX_BYTES));
    archive.set_preserve_permissions(false);
    archive.set_unpack_xattrs(false);
    let mut bounds = Bounds::default();
    let mut links = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        bounds.add(entry.size())?;
        let is_inside = match entry.link_name()? {
            Some(target) if kind.is_symlink() => {
                is_below(&path.parent().unwrap_or(Path::new("")).join(target))
            }
            _ => kind.is_file() || kind.is_dir(),
        };
        // A global header describes the whole archive and is not an entry.
        if kind.is_pax_global_extensions() {
            continue;
        }
        // `unpack_in` also rejects entries behind a link that leads outside.
        if !is_inside || !is_below(&path) || !entry.unpack_in(into)? {
            return Err(ArchiveError::Entry(path.display().to_string()));
        }
        if kind.is_symlink() {
            links.push(path);
        }
    }
    // A link can lead outside through another link.
    let root = into.canonicalize()?;
    let leads_outside = |link: &PathBuf| {
        let real = into.join(link).canonicalize();
        !real.is_ok_and(|real| real.starts_with(&root))
    };
    match links.into_iter().find(leads_outside) {
        Some(link) => Err(ArchiveError::Entry(link.display().to_string())),
        None => Ok(()),
    }
}

fn unpack_zip(file: File, into: &Path) -> Result<(), ArchiveError> {
    let mut archive = zip::ZipArchive::new(file)?;
    let mut bounds = Bounds::default();
    for number in 0..archive.len() {
        let entry = archive.by_index(number)?;
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        let size = entry.size();
        bounds.add(size)?;
        let path = entry.enclosed_name();
        let path = path.filter(|path| is_below(path) && !entry.is_symlink());
        let path = into.join(path.ok_or(ArchiveError::Entry(name))?);
        if entry.is_dir() {
            fs::create_dir_all(&path)?;
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let executable = entry.unix_mode().is_some_and(|mode| mode & 0o100 != 0);
        // The size in the archive can be wrong.
        let mut content = entry.take(size.saturating_add(1));
        let written = io::copy(&mut content, &mut File::create_new(&path)?)?;
        if written > size {
            return Err(ArchiveError::TooLarge);
        }
        if executable {
            make_executable(&path)?;
        }
    }
    Ok(())
}

/// Lets the owner execute a program.
pub(super) fn make_executable(program: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(program)?.permissions().mode();
    fs::set_permissions(program, fs::Permissions::from_mode(mode | 0o100))
}

/// A path below a folder, without steps out of it.
pub(super) fn below(folder: &Path, path: &str) -> Option<PathBuf> {
    let parts = Path::new(path).components();
    let names = parts.filter(|part| *part != Component::CurDir);
    is_below(Path::new(path)).then(|| folder.join(names.collect::<PathBuf>()))
}

fn is_below(path: &Path) -> bool {
    let mut depth = 0_usize;
    path.components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::CurDir => true,
        Component::ParentDir if depth > 0 => {
            depth -= 1;
            true
        }
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => false,
    })
}

#[derive(Debug, Default)]
struct Bounds {
    files: usize,
    bytes: u64,
}

impl Bounds {
    fn add(&mut self, size: u64) -> Result<(), ArchiveError> {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(size);
        let fits = self.files <= MAX_FILES && self.bytes <= MAX_BYTES;
        fits.then_some(()).ok_or(ArchiveError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_the_end_of_the_name() {
        for (name, format) in [
            ("https://x/a.tar.gz", Format::TarGz),
            ("a.TGZ?token=1", Format::TarGz),
            ("a.tbz2", Format::TarBz2),
            ("a.zip", Format::Zip),
            ("https://x/agent", Format::Raw),
        ] {
            assert_eq!(Format::of(name), format, "{name}");
        }
    }

    #[test]
    fn paths_stay_below_their_folder() {
        for inside in ["a", "./a/b", "a/../b"] {
            assert!(is_below(Path::new(inside)), "{inside}");
        }
        for outside in ["/a", "..", "a/../../b", "../a"] {
            assert!(!is_below(Path::new(outside)), "{outside}");
        }
    }

    #[test]
    fn tar_with_an_entry_or_a_link_outside_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        for (name, link) in [
            ("../evil", None),
            ("a", Some("/etc")),
            ("a", Some("../../x")),
            ("a", Some("absent")),
        ] {
            let archive = folder.path().join("a.tar.gz");
            let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(
                File::create(&archive).unwrap(),
                flate2::Compression::fast(),
            ));
            let mut header = tar::Header::new_gnu();
            // `set_path` rejects such a name.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(0);
            header.set_mode(0o644);
            if let Some(link) = link {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_link_name(link).unwrap();
            }
            header.set_cksum();
            builder.append(&header, io::empty()).unwrap();
            builder.into_inner().unwrap().finish().unwrap();
            let into = folder.path().join("into");
            fs::create_dir_all(&into).unwrap();
            assert!(
                matches!(
                    unpack(Format::TarGz, &archive, &into),
                    Err(ArchiveError::Entry(_))
                ),
                "{name} {link:?}"
            );
            assert!(!folder.path().join("evil").exists());
        }
    }
}
