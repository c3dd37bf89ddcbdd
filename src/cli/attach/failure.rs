//! Invalid arguments of `attach`.

use std::path::PathBuf;

use crate::outgoing::TlsError;

#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AttachFailure {
    #[error("no key: set ACP_GATEWAY_KEY or --key-file FILE")]
    NoKey,
    #[error("the key is empty, or has characters that no key has")]
    InvalidKey,
    #[error("could not read the key file {}", path.display())]
    KeyFile {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("could not read the file with certificates {}", path.display())]
    CaFile {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("could not prepare TLS for --url")]
    Tls(#[from] TlsError),
    #[error("--url must not contain a key: set ACP_GATEWAY_KEY or --key-file FILE")]
    KeyInUrl,
    #[error("invalid --url {0:?}: expected http://HOST or https://HOST")]
    Url(String),
    #[error(
        "invalid --url {0:?}: expected ws://HOST/v1/fleet/connect or wss://HOST/v1/fleet/connect"
    )]
    FleetUrl(String),
}
