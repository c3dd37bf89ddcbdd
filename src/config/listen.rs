//! The address on which the gateway listens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::error::ConfigError;
use super::section::Field;

/// The address to bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    pub address: SocketAddr,
    /// True if the operator configured this address. Otherwise, the gateway may use the next free port.
    pub explicit: bool,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            explicit: false,
        }
    }
}

pub(super) fn read(field: &Field) -> Result<Listen, ConfigError> {
    let text = field.string()?;
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port
            .parse()
            .ok()
            .map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        None => text.parse().ok(),
    };
    let address = address.ok_or_else(|| {
        field.invalid(format!(
            "{text:?} is not an address and a port such as \"127.0.0.1:8080\""
        ))
    })?;
    Ok(Listen {
        address,
        explicit: true,
    })
}

impl Listen {
    /// Returns true if other machines can reach the address, so that keys and conversations could leave this
    /// machine unencrypted.
    pub fn is_exposed(&self) -> bool {
        !self.address.ip().to_canonical().is_loopback()
    }
}
