//! The certificates that the client trusts.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The client cannot use TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("could not read the certificates of this system, which an https URL needs")]
    NoSystemCertificates(#[source] rustls_native_certs::Error),
    #[error(
        "this system has no certificates of certificate authorities, which an https URL needs: set ca_file"
    )]
    NoCertificates,
    #[error("the file with certificates of certificate authorities has an invalid certificate")]
    InvalidCertificate,
    #[error("could not configure TLS")]
    Rustls(#[from] rustls::Error),
}

/// Trusts the certificates of the system and those of `ca_certificates`, in PEM. Reads files.
pub(super) fn config(ca_certificates: Option<&[u8]>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    let mut system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(pem) = ca_certificates {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| TlsError::InvalidCertificate)?;
            roots
                .add(certificate)
                .map_err(|_| TlsError::InvalidCertificate)?;
        }
        if roots.len() == before {
            return Err(TlsError::InvalidCertificate);
        }
    }
    if roots.is_empty() {
        return Err(match system.errors.pop() {
            Some(error) => TlsError::NoSystemCertificates(error),
            None => TlsError::NoCertificates,
        });
    }
    with_roots(roots)
}

/// Trusts no certificate, for clients that use no TLS.
pub(super) fn without_certificates() -> Result<ClientConfig, TlsError> {
    with_roots(RootCertStore::empty())
}

fn with_roots(roots: RootCertStore) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_a_certificate_is_rejected() {
        for pem in [
            "",
            "no certificate",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert!(
                matches!(
                    config(Some(pem.as_bytes())),
                    Err(TlsError::InvalidCertificate)
                ),
                "{pem}"
            );
        }
        assert!(without_certificates().is_ok());
    }
}
