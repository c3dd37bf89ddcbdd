//! Files with certificate authorities.

use std::path::PathBuf;

use super::error::ConfigError;
use super::section::Field;

/// No file with certificates is larger.
const MAX_CA_BYTES: u64 = 1 << 20;

/// A file with certificates in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaFile {
    pub path: PathBuf,
    pub certificates: Vec<u8>,
}

pub(super) fn read(field: &Field) -> Result<CaFile, ConfigError> {
    use std::io::Read as _;
    let path = PathBuf::from(field.string()?);
    if !path.is_absolute() {
        return Err(field.invalid("must be an absolute path"));
    }
    let mut certificates = Vec::new();
    let read = std::fs::File::open(&path)
        .and_then(|file| file.take(MAX_CA_BYTES).read_to_end(&mut certificates));
    read.map_err(|error| field.invalid(format!("{}: {error}", path.display())))?;
    let marker = b"-----BEGIN CERTIFICATE-----";
    if !certificates
        .windows(marker.len())
        .any(|window| window == marker)
    {
        return Err(field.invalid(format!("{}: not a certificate in PEM", path.display())));
    }
    Ok(CaFile { path, certificates })
}
