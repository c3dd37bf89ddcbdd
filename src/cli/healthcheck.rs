//! `healthcheck`: sends GET /readyz to the address in the configuration.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::failure::Failure;
use super::options::Options;

const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
enum HealthError {
    #[error("no response from {address}")]
    Unreachable { address: SocketAddr, source: std::io::Error },
    #[error("not ready: {0}")]
    NotReady(String),
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let address = connect_address(options.local_config()?.listen.address);
    let answer = request_readyz(address).map_err(|source| HealthError::Unreachable { address, source })?;
    let status = answer.lines().next().unwrap_or_default();
    match status.split_whitespace().nth(1) {
        Some("200") => Ok(()),
        _ => Err(HealthError::NotReady(status.chars().filter(|c| !c.is_control()).collect()).into()),
    }
}

/// The beginning of the response, with the status line.
fn request_readyz(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut head = [0; 256];
    let mut filled = 0;
    while filled < head.len() && !head[..filled].contains(&b'\n') {
        match stream.read(&mut head[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(String::from_utf8_lossy(&head[..filled]).into_owned())
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
