//! The sockets of the gateway: the configured address, and its counterpart of the other IP version.
//!
//! A client that connects to `localhost` can reach 127.0.0.1 or `::1`. Without the counterpart, an agent could bind the
//! free one of these addresses and receive the keys of clients.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use tokio::net::TcpStream;

/// How many ports to try if the kernel selects the port: its counterpart may be in use.
const PORT_ATTEMPTS: usize = 16;

/// The number of connections that the kernel queues until the gateway serves.
const START_BACKLOG: i32 = 128;

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("could not bind {address} (--listen ADDR sets another address)")]
    Configured {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(
        "could not bind {address}, which clients of localhost can reach instead of {configured}: stop the program that \
         uses it, or set another port with --listen ADDR"
    )]
    Counterpart {
        address: SocketAddr,
        configured: SocketAddr,
        source: io::Error,
    },
}

impl BindError {
    pub fn is_in_use(&self) -> bool {
        let (Self::Configured { source, .. } | Self::Counterpart { source, .. }) = self;
        source.kind() == io::ErrorKind::AddrInUse
    }
}

#[derive(Debug)]
pub struct BoundListeners {
    configured: TcpListener,
    /// `None` if the address has no counterpart, or if the machine lacks the other IP version.
    counterpart: Option<TcpListener>,
}

impl BoundListeners {
    /// Binds the address and its counterpart. With port 0 the kernel selects one port for both.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let mut attempts = if address.port() == 0 {
            PORT_ATTEMPTS
        } else {
            1
        };
        loop {
            attempts -= 1;
            match Self::bind_both(address) {
                Err(error @ BindError::Counterpart { .. }) if error.is_in_use() && attempts > 0 => {
                }
                bound => return bound,
            }
        }
    }

    fn bind_both(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError::Configured { address, source };
        let configured = TcpListener::bind(address).map_err(failed)?;
        let bound = configured.local_addr().map_err(failed)?;
        let serves_both = bound.is_ipv6() && !sockopt::ipv6_v6only(&configured).unwrap_or(true);
        let Some(ip) = counterpart_of(bound.ip(), serves_both) else {
            return Ok(Self {
                configured,
                counterpart: None,
            });
        };
        let address = SocketAddr::new(ip, bound.port());
        match bind_one_version(address) {
            Ok(counterpart) => Ok(Self {
                configured,
                counterpart: Some(counterpart),
            }),
            // The machine lacks this IP version, so no other program can bind the address either.
            Err(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT) => Ok(Self {
                configured,
                counterpart: None,
            }),
            Err(errno) => Err(BindError::Counterpart {
                address,
                configured: bound,
                source: errno.into(),
            }),
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.configured.local_addr()
    }

    pub fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        let all = std::iter::once(&self.configured).chain(&self.counterpart);
        all.map(|listener| Ok(listener.try_clone()?.into()))
            .collect()
    }

    pub fn register(self) -> io::Result<Listeners> {
        let registered = |listener: TcpListener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        };
        Ok(Listeners {
            configured: registered(self.configured)?,
            counterpart: self.counterpart.map(registered).transpose()?,
        })
    }
}

/// The address that a client of the same host name could use instead. `serves_both`: the socket has both IP versions.
fn counterpart_of(ip: IpAddr, serves_both: bool) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Some(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Some(Ipv6Addr::UNSPECIFIED.into()),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Some(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) if !serves_both => Some(Ipv4Addr::UNSPECIFIED.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

fn bind_one_version(address: SocketAddr) -> rustix::io::Result<TcpListener> {
    let family = if address.is_ipv6() {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, START_BACKLOG)?;
    Ok(socket.into())
}

pub struct Listeners {
    configured: tokio::net::TcpListener,
    counterpart: Option<tokio::net::TcpListener>,
}

impl Listeners {
    /// The next connection. Cancel safe.
    pub(super) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let Some(counterpart) = &self.counterpart else {
            return self.configured.accept().await;
        };
        loop {
            tokio::select! {
                accepted = self.configured.accept() => return accepted,
                accepted = counterpart.accept() => {
                    let (stream, peer) = accepted?;
                    if serves(peer) {
                        return Ok((stream, peer));
                    }
                }
            }
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &tokio::net::TcpListener> {
        std::iter::once(&self.configured).chain(&self.counterpart)
    }

    pub(super) fn into_std(self) -> impl Iterator<Item = TcpListener> {
        let all = std::iter::once(self.configured).chain(self.counterpart);
        all.filter_map(|listener| listener.into_std().ok())
    }
}

/// Whether the counterpart serves a peer. The operator did not configure the other IP version for other machines.
fn serves(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_addresses_of_localhost_are_bound() {
        let bound = BoundListeners::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = bound.local_addr().unwrap().port();
        for address in [format!("[::1]:{port}"), format!("[::]:{port}")] {
            let error = TcpListener::bind(&address).unwrap_err();
            assert!(
                matches!(error.kind(), io::ErrorKind::AddrInUse),
                "{address}: {error}"
            );
        }
        assert_eq!(bound.copies().unwrap().len(), 2);
    }

    #[test]
    fn counterpart_in_use_is_an_error_that_names_it() {
        let occupied = TcpListener::bind("[::1]:0").unwrap();
        let address = SocketAddr::new(
            Ipv4Addr::LOCALHOST.into(),
            occupied.local_addr().unwrap().port(),
        );
        let error = BoundListeners::bind(address).unwrap_err();
        assert!(error.is_in_use());
        let text = error.to_string();
        assert!(
            text.contains(&format!("could not bind [::1]:{},", address.port())),
            "{text}"
        );
    }

    #[test]
    fn counterpart_of_all_addresses_serves_this_machine_only() {
        let bound = BoundListeners::bind("0.0.0.0:0".parse().unwrap()).unwrap();
        let port = bound.local_addr().unwrap().port();
        assert!(TcpListener::bind(format!("[::1]:{port}")).is_err());
        for (peer, served) in [
            ("[::1]:1", true),
            ("[2001:db8::1]:1", false),
            ("[fe80::1]:1", false),
        ] {
            assert_eq!(serves(peer.parse().unwrap()), served, "{peer}");
        }
    }

    #[test]
    fn other_addresses_have_no_counterpart() {
        assert_eq!(counterpart_of("127.0.0.2".parse().unwrap(), false), None);
        assert_eq!(counterpart_of("::".parse().unwrap(), true), None);
        assert_eq!(
            counterpart_of("::".parse().unwrap(), false),
            Some(Ipv4Addr::UNSPECIFIED.into())
        );
    }
}
