//! Why a file is not served.

use std::io;

use rustix::io::Errno;

/// Everything that can stand between a path and its file. Each operation meets only some of them.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("a path has names without `..` and NUL")]
    Malformed,
    #[error("the path has to be absolute")]
    Relative,
    #[error("the path leads out of the session's folders")]
    OutsideRoots,
    #[error("there is nothing at this path")]
    Missing,
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is not a folder")]
    NotADirectory,
    #[error("the folder is not empty")]
    NotEmpty,
    #[error("a file may have {0} bytes here")]
    TooLarge(u64),
    #[error("the file is not UTF-8 text")]
    NotText,
    /// It is not what the caller has seen of it.
    #[error("the file has changed")]
    Changed,
    #[error("the gateway may not do this to the file")]
    PermissionDenied,
    #[error("the disk is full")]
    DiskFull,
    #[error("the file could not be read or written")]
    Io(#[source] io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            // Without a number of the kernel's it is what cap-std says of a path that leads out.
            None if error.kind() == io::ErrorKind::PermissionDenied => Self::OutsideRoots,
            Some(Errno::XDEV) => Self::OutsideRoots,
            // A loop of links leads to nothing, and nothing lies below a file.
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Self::Missing,
            Some(Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ) => Self::Malformed,
            Some(Errno::ISDIR | Errno::NXIO | Errno::NODEV) => Self::NotAFile,
            Some(Errno::NOTEMPTY) => Self::NotEmpty,
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Self::PermissionDenied,
            Some(Errno::NOSPC | Errno::DQUOT) => Self::DiskFull,
            _ => Self::Io(error),
        }
    }
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}
