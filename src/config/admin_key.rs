//! The admin key of the operator. The operator supplies it at each start, and the process keeps only its hash
//! in memory.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::environment::Environment;
use super::error::ConfigError;
use super::secret;

pub(super) const FILE_VARIABLE: &str = "ACP_GATEWAY_ADMIN_KEY_FILE";
pub(super) const HASH_VARIABLE: &str = "ACP_GATEWAY_ADMIN_KEY_HASH";
/// The minimum number of characters: 128 bits in hex.
const MIN_KEY_LEN: usize = 32;

/// Returns the SHA-256 of the key: computed from the key in a file, or read from a variable.
pub(super) fn read(environment: &Environment) -> Result<Option<[u8; 32]>, ConfigError> {
    let variable = |name| move |reason: String| ConfigError::Variable { name, reason };
    match (
        environment.get(FILE_VARIABLE),
        environment.get(HASH_VARIABLE),
    ) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(variable(HASH_VARIABLE)(format!(
            "cannot be combined with {FILE_VARIABLE}"
        ))),
        (Some(path), None) => {
            let key = secret::read_file(Path::new(path)).map_err(variable(FILE_VARIABLE))?;
            if key.len() < MIN_KEY_LEN || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                let reason =
                    format!("the file must contain one key of at least {MIN_KEY_LEN} characters");
                return Err(variable(FILE_VARIABLE)(reason));
            }
            Ok(Some(Sha256::digest(key).into()))
        }
        (None, Some(hash)) => {
            let bytes = hash.to_str().and_then(parse_hex);
            bytes.map(Some).ok_or_else(|| {
                variable(HASH_VARIABLE)("not a SHA-256 hash of 64 hex digits".to_owned())
            })
        }
    }
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
