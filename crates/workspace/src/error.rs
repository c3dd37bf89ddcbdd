//! The errors of file operations.

use std::io;

use rustix::io::Errno;

/// An error of a file operation. Each operation returns only some of these.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("the path must not contain `..` or NUL")]
    Malformed,
    #[error("the path must be absolute")]
    Relative,
    #[error("the path is outside of the session's directories")]
    OutsideRoots,
    #[error("nothing exists at this path")]
    Missing,
    #[error("not a regular file")]
    NotAFile,
    #[error("not a directory")]
    NotADirectory,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("the file is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the file is not UTF-8 text")]
    NotText,
    /// The file does not match the caller's precondition.
    #[error("the file has changed")]
    Changed,
    /// The caller accepts only a new file.
    #[error("the file exists, and `If-None-Match: *` permits only a new file")]
    Exists,
    #[error("the file has not changed since the start of the session")]
    Unchanged,
    #[error("the content of the file at the start of the session was not stored")]
    NotStored,
    #[error("the gateway has no permission for this operation on the file")]
    PermissionDenied,
    #[error("the disk is full")]
    DiskFull,
    #[error("could not read or write the file")]
    Io(#[source] io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            // cap-std reports a path that leads out of the root without an errno.
            None if error.kind() == io::ErrorKind::PermissionDenied => Self::OutsideRoots,
            Some(Errno::XDEV) => Self::OutsideRoots,
            // A loop of links leads to no file, and a file has no children.
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
