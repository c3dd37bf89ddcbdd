//! `healthcheck`: sends GET /readyz to the address in the configuration.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::failure::Failure;
use super::source::local_config;
use crate::config::Flags;
use crate::types::text::strip_controls;

const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
enum HealthError {
    #[error("no response from {address}")]
    Unreachable {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("not ready: {0}")]
    NotReady(String),
}

pub(super) fn run(flags: &Flags) -> Result<(), Failure> {
    let address = connect_address(local_config(flags)?.listen.address);
    let status =
        request_readyz(address).map_err(|source| HealthError::Unreachable { address, source })?;
    match status.split_whitespace().nth(1) {
        Some("200") => Ok(()),
        _ => Err(HealthError::NotReady(strip_controls(status.trim_end()).into_owned()).into()),
    }
}

/// The beginning of the status line of the response.
fn request_readyz(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut line = Vec::new();
    BufReader::new(stream.take(256)).read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// The address to connect to: loopback if the gateway listens on all addresses.
fn connect_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
