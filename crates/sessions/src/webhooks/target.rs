//! The URLs to which deliveries go, and the secrets that sign deliveries (Standard Webhooks, section "Signature scheme").

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Uri;
use sha2::Sha256;

use base::types::UserId;
use outgoing::{HostPattern, url_port};

const MAX_URL_BYTES: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error(
        "must be an absolute URL of at most 2048 ASCII characters, without credentials and fragment"
    )]
    Invalid,
    #[error("must have a port from 1 to 65535, or none")]
    Port,
    #[error("must begin with https://")]
    NotHttps,
    #[error("the operator has not permitted this host in `webhooks.allowed_hosts`")]
    HostNotAllowed,
}

/// Checks the URL of a webhook. The addresses of its host are checked at each connection.
pub(super) fn check(text: &str, allowed: &[HostPattern]) -> Result<Uri, TargetError> {
    if text.len() > MAX_URL_BYTES || !text.is_ascii() || text.contains(['@', '#']) {
        return Err(TargetError::Invalid);
    }
    let url: Uri = text.parse().map_err(|_| TargetError::Invalid)?;
    url_port(&url).map_err(|_| TargetError::Port)?;
    match url.scheme_str() {
        Some("https") => {}
        Some(_) => return Err(TargetError::NotHttps),
        None => return Err(TargetError::Invalid),
    }
    let host = url
        .host()
        .filter(|host| !host.is_empty())
        .ok_or(TargetError::Invalid)?;
    if !allowed.iter().any(|pattern| pattern.matches(host)) {
        return Err(TargetError::HostNotAllowed);
    }
    Ok(url)
}

pub(super) fn host(url: &str) -> String {
    let parsed: Option<Uri> = url.parse().ok();
    parsed
        .and_then(|url| Some(url.authority()?.to_string()))
        .unwrap_or_default()
}

const BYTES: usize = 32;

/// The secret of the gateway, from which the secrets of users are derived. It is a file of the private folder, so the
/// store contains no secret.
#[derive(Clone)]
pub(super) struct MasterSecret([u8; BYTES]);

pub(super) struct SigningSecret([u8; BYTES]);

impl MasterSecret {
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

    pub(super) fn of_user(&self, user: &UserId) -> SigningSecret {
        SigningSecret(mac(
            &self.0,
            &[b"webhooks of the user ", user.as_str().as_bytes()],
        ))
    }
}

impl SigningSecret {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_urls_of_permitted_hosts_are_accepted() {
        use TargetError::{HostNotAllowed, Invalid, NotHttps, Port};
        let allowed = [
            "hooks.example".parse().unwrap(),
            "*.team.example".parse().unwrap(),
        ];
        for (url, expected) in [
            ("https://hooks.example/a?b=c", Ok(())),
            ("https://hooks.example:8443/", Ok(())),
            ("https://a.team.example", Ok(())),
            ("http://hooks.example/", Err(NotHttps)),
            ("ftp://hooks.example/", Err(NotHttps)),
            ("https://team.example/", Err(HostNotAllowed)),
            ("https://hooks.example.evil/", Err(HostNotAllowed)),
            ("https://127.0.0.1/", Err(HostNotAllowed)),
            ("https://2130706433/", Err(HostNotAllowed)),
            ("https://[::ffff:127.0.0.1]/", Err(HostNotAllowed)),
            ("https://hooks.example@evil/", Err(Invalid)),
            ("https://evil#hooks.example", Err(Invalid)),
            ("/a", Err(Invalid)),
            ("hooks.example", Err(Invalid)),
            ("https:///a", Err(Invalid)),
            ("https://hooks.example/\u{202e}a", Err(Invalid)),
            ("https://hooks.example:1/", Ok(())),
            ("https://hooks.example:65535/", Ok(())),
            ("https://hooks.example:0/", Err(Port)),
            ("https://hooks.example:65536/", Err(Port)),
            ("https://hooks.example:99999/", Err(Port)),
            ("https://[::1]:0/", Err(Port)),
        ] {
            assert_eq!(check(url, &allowed).map(drop), expected, "{url}");
        }
    }
}

#[cfg(test)]
mod secret_tests {
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
        let a = UserId::owner();
        let b = UserId::from_text("b");
        assert_eq!(first.of_user(&a).text(), again.of_user(&a).text());
        assert_ne!(first.of_user(&a).text(), first.of_user(&b).text());
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}
