//! The secrets that sign deliveries (Standard Webhooks, section "Signature scheme").

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::types::Tenant;

const BYTES: usize = 32;

/// The secret of the gateway, from which the secrets of tenants are derived. It is a file of the private folder, so the
/// store contains no secret.
#[derive(Clone)]
pub(super) struct MasterSecret([u8; BYTES]);

/// The secret of a tenant, which receivers of its deliveries know.
pub(super) struct SigningSecret([u8; BYTES]);

impl MasterSecret {
    /// Reads the file, or creates it with a random secret.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match fs::File::open(path) {
            Ok(mut file) => {
                let mut secret = [0; BYTES];
                file.read_exact(&mut secret)?;
                Ok(Self(secret))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(path),
            Err(error) => Err(error),
        }
    }

    /// Writes another file and renames it, so that a crash leaves no partial secret.
    fn create(path: &Path) -> io::Result<Self> {
        let mut secret = [0; BYTES];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        let temporary = path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&secret)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        Ok(Self(secret))
    }

    pub(super) fn of_tenant(&self, tenant: &Tenant) -> SigningSecret {
        SigningSecret(mac(
            &self.0,
            &[b"webhooks of the tenant ", tenant.as_str().as_bytes()],
        ))
    }
}

impl SigningSecret {
    /// The text that libraries for receivers read.
    pub(super) fn text(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.0))
    }

    /// The value of the header `webhook-signature`. `timestamp` is in seconds since 1970.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let signed = mac(
            &self.0,
            &[
                id.as_bytes(),
                b".",
                timestamp.to_string().as_bytes(),
                b".",
                body,
            ],
        );
        format!("v1,{}", STANDARD.encode(signed))
    }
}

fn mac(key: &[u8; BYTES], parts: &[&[u8]]) -> [u8; BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

impl fmt::Debug for MasterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification of Standard Webhooks.
    #[test]
    fn signature_is_that_of_the_specification() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let mut key = [0; BYTES];
        key[..secret.len()].copy_from_slice(&secret);
        // HMAC pads a short key with zeros.
        let signature = SigningSecret(key).sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secret_survives_a_restart_and_differs_between_tenants() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("webhooks");
        let first = MasterSecret::open(&path).unwrap();
        let again = MasterSecret::open(&path).unwrap();
        let (a, b) = (Tenant::default(), Tenant::new("b"));
        assert_eq!(first.of_tenant(&a).text(), again.of_tenant(&a).text());
        assert_ne!(first.of_tenant(&a).text(), first.of_tenant(&b).text());
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}
